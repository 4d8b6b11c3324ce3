//! The wire between controllers and registries: `dynamo.mcs.v1` as gRPC and as proto3 JSON.
//!
//! | module | does |
//! |---|---|
//! | [`pb`] | the generated messages, clients (feature `client`) and servers (feature `server`) |
//! | [`convert`] | wire ↔ [`mcs_core`]; the one place where a message becomes something that can be trusted |
//! | [`chunks`] | endpoint sets above what one message may carry |
//! | [`frames`] | steps of a watch ↔ [`mcs_core::model::Frame`] |
//! | [`lists`] | entries of a list that were told in several pieces |
//! | [`status`] | refusals ↔ gRPC codes with reasons |
//! | [`url`] | the URL of a registry |
//! | `connect` | connections to a registry, with the cause when there is none (feature `client`) |
//! | `client` | calls to a registry in core's types, with deadlines (feature `client`) |
//! | `encoded` | steps of a watch that are encoded once, however many watch (feature `server`) |
//!
//! The code is made at build time from `dynamo/mcs/v1/*.proto`, without protoc, so it cannot drift from them. The wire
//! knows the domain; the domain never knows the wire.

pub mod chunks;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod connect;
pub mod convert;
#[cfg(feature = "server")]
pub mod encoded;
pub mod frames;
pub mod lists;
pub mod status;
pub mod url;
pub mod well_known;

mod generated {
    #![expect(clippy::allow_attributes, clippy::large_enum_variant, clippy::use_self, reason = "generated")]

    tonic::include_proto!("dynamo.mcs.v1");
    include!(concat!(env!("OUT_DIR"), "/dynamo.mcs.v1.serde.rs"));
}

#[cfg(feature = "server")]
mod served {
    #![expect(clippy::allow_attributes, reason = "generated")]

    include!(concat!(env!("OUT_DIR"), "/server/dynamo.mcs.v1.rs"));
}

/// The messages and services of `dynamo.mcs.v1`, as described in the proto files.
pub mod pb {
    pub use crate::generated::*;
    #[cfg(feature = "server")]
    pub use crate::served::{imports_server, members_server};
}

/// What the proto files describe, encoded as a `google.protobuf.FileDescriptorSet`; served by gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn the_descriptor_set_names_both_services() {
        /// As much of `google.protobuf.FileDescriptorSet` as is looked at.
        #[derive(prost::Message)]
        struct Set {
            #[prost(message, repeated, tag = "1")]
            files: Vec<File>,
        }
        #[derive(prost::Message)]
        struct File {
            #[prost(message, repeated, tag = "6")]
            services: Vec<Service>,
        }
        #[derive(prost::Message)]
        struct Service {
            #[prost(string, tag = "1")]
            name: String,
        }
        let set = Set::decode(FILE_DESCRIPTOR_SET).unwrap();
        let names: Vec<_> =
            set.files.into_iter().flat_map(|file| file.services).map(|service| service.name).collect();
        assert_eq!(names, ["Members", "Imports"]);
    }
}
