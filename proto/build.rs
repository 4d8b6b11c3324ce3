//! Generates the Rust code of `dynamo.mcs.v1`: messages, proto3 JSON, clients and servers. No protoc is needed.

use prost::Message;
use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

const FILES: [&str; 3] =
    ["dynamo/mcs/v1/types.proto", "dynamo/mcs/v1/members.proto", "dynamo/mcs/v1/imports.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=dynamo");
    let out: PathBuf = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?.into();
    let files = protox::compile(FILES, ["."])?;
    let descriptors = files.encode_to_vec();
    std::fs::write(out.join("descriptors.bin"), &descriptors)?;

    // Maps are BTreeMaps on both sides, so that equal content has equal bytes and equal JSON in every process.
    tonic_prost_build::configure()
        .btree_map(".")
        .compile_well_known_types(true)
        .extern_path(".google.protobuf", "crate::well_known")
        .build_client(env::var_os("CARGO_FEATURE_CLIENT").is_some())
        .build_server(false)
        .build_transport(false)
        .out_dir(&out)
        .compile_fds(files.clone())?;

    if env::var_os("CARGO_FEATURE_SERVER").is_some() {
        servers(files, &out.join("server"))?;
    }

    pbjson_build::Builder::new()
        .register_descriptors(&descriptors)?
        .btree_map(["."])
        .extern_path(".google.protobuf", "crate::well_known")
        .ignore_unknown_fields()
        .emit_fields()
        .out_dir(&out)
        .build(&[".dynamo.mcs.v1"])?;
    Ok(())
}

/// The servers are generated apart from the messages, because a served watch sends steps that are encoded already: for
/// them the type of a step is `EncodedStep`.
fn servers(files: tonic_prost_build::FileDescriptorSet, out: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(out)?;
    tonic_prost_build::configure()
        .extern_path(".dynamo.mcs.v1", "crate::pb")
        .extern_path(".dynamo.mcs.v1.WatchResponse", "crate::encoded::EncodedStep")
        .compile_well_known_types(true)
        .extern_path(".google.protobuf", "crate::well_known")
        .build_client(false)
        .build_server(true)
        .build_transport(false)
        .out_dir(out)
        .compile_fds(files)?;
    Ok(())
}
