//! The program over a table, and where it does not even start.

use crate::program::Program;
use crate::service::{PATIENCE, ask, registration};
use mcs_runtime::dynamodb::double::{Double, Options, TABLE};
use std::process::Command;

fn flags(double: &Double) -> Vec<String> {
    vec![
        "--registration-storage=dynamodb".to_owned(),
        format!("--dynamodb-table={TABLE}"),
        format!("--dynamodb-endpoint={}", double.endpoint()),
    ]
}

#[tokio::test]
async fn the_program_registers_and_lists_over_a_table_that_it_made_itself() {
    let double = Double::empty(Options::default()).await;
    let mut flags = flags(&double);
    flags.extend(["--dynamodb-ensure-table", "--drain-delay-secs=0"].map(str::to_owned));
    let environment = double.environment();
    let one = Program::start_with(&flags, &environment).await;
    let other = Program::start_with(&flags, &environment).await;
    let ready = async {
        for program in [&one, &other] {
            while ask(program.address, "GET", "/healthz", "").await.0 != 200 {}
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.expect("never ready");
    let body = registration("chat").to_string();
    assert_eq!(ask(one.address, "POST", "/pools", &body).await.0, 200);
    let listed = async { while !ask(other.address, "GET", "/pools", "").await.1.contains("chat") {} };
    tokio::time::timeout(PATIENCE, listed).await.expect("never listed");
    for program in [one, other] {
        program.signal("-TERM").await;
        let (code, log) = program.ended().await;
        assert_eq!(code, Some(0), "{log}");
    }
}

#[tokio::test]
async fn the_program_ends_at_once_where_no_region_is_known() {
    let double = Double::start().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_global-discovery-service"));
    command.args(flags(&double)).arg("--listen=127.0.0.1:0").env_clear();
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{log}");
    let expected = format!("no AWS region for table {TABLE}: set --dynamodb-region or AWS_REGION");
    assert!(log.contains(&expected), "{log}");
    assert_eq!(double.units().calls, 0);
}

#[tokio::test]
async fn the_region_of_the_flag_goes_before_that_of_the_environment() {
    let double = Double::start().await;
    let mut flags = flags(&double);
    flags.push("--dynamodb-region=eu-north-1".to_owned());
    let program = Program::start_with(&flags, &double.environment()).await;
    let ready = async { while ask(program.address, "GET", "/healthz", "").await.0 != 200 {} };
    tokio::time::timeout(PATIENCE, ready).await.expect("never ready");
    assert_eq!(ask(program.address, "POST", "/pools", &registration("chat").to_string()).await.0, 200);
    assert_eq!(double.items(TABLE).await[0]["written_in"]["S"], "eu-north-1");
}
