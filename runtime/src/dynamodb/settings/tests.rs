use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, future};
use axum::Router;
use axum::routing::{get, post};
use tokio::sync::Notify;

use super::*;
use crate::dynamodb::{Action, Class, Why};

/// Set for a copy of the test binary that is the program under test; the region that it is given by its flag, if any.
const FLAG: &str = "MCS_RUNTIME_TEST_REGION";

const FLAGS: Flags = Flags { table: "--dynamodb-table", region: "--region", endpoint: "--dynamodb-endpoint" };

fn settings(region: Option<&str>) -> Settings {
    Settings {
        table: "table-of-tests".to_owned(),
        region: region.map(str::to_owned),
        // A port where nobody listens: without credentials nobody is asked.
        endpoint: Some("http://127.0.0.1:9".to_owned()),
        limits: Limits::within(Duration::from_secs(60)),
        flags: FLAGS,
    }
}

/// What a program in this environment makes of it.
fn program(region: &str, environment: &[(&str, &str)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "dynamodb::settings::tests::the_program_of_the_tests_above",
        ])
        .env_clear()
        .env(FLAG, region)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.split_once("told: "));
    line.unwrap_or_else(|| panic!("it said nothing: {text}")).1.to_owned()
}

#[test]
fn a_region_is_that_of_the_flag_else_of_the_environment_and_without_one_the_flag_is_named() {
    let of_environment = [("AWS_REGION", "us-east-2")];
    let refused = "no AWS region for table table-of-tests: set --region or AWS_REGION";
    assert_eq!(program("", &[]), refused);
    for (flag, environment, place) in [
        ("", &of_environment[..], "us-east-2"),
        ("eu-west-1", &of_environment, "eu-west-1"),
        ("eu-west-1", &[], "eu-west-1"),
    ] {
        let begin = format!("Query on table table-of-tests in {place} at http://127.0.0.1:9: ");
        let told = program(flag, environment);
        assert!(told.starts_with(&begin), "{told}");
    }
}

#[test]
fn without_credentials_a_call_says_so() {
    let told = program("eu-west-1", &[]);
    let begin = "Query on table table-of-tests in eu-west-1 at http://127.0.0.1:9: no AWS credentials that are taken: ";
    assert!(told.starts_with(begin), "{told}");
    for looked_at in
        ["Environment: ", "Profile: ", "WebIdentityToken: ", "EcsContainer: ", "Ec2InstanceMetadata: "]
    {
        assert!(told.contains(looked_at), "{told}");
    }
}

#[test]
fn credentials_of_the_environment_are_used_with_an_endpoint_of_ones_own() {
    let credentials = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "do-not-show")];
    let told = program("eu-west-1", &credentials);
    assert!(told.contains("DynamoDB cannot be used now"), "{told}");
    assert!(!told.contains("do-not-show"), "{told}");
}

/// Gives credentials as the agent of Pod Identity does, and as STS does for the token of a ServiceAccount.
async fn credentials_server() -> String {
    let agent = r#"{"AccessKeyId":"of-the-agent","SecretAccessKey":"s","Token":"t","Expiration":"2100-01-01T00:00:00Z"}"#;
    let sts = "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
        <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>of-sts</AccessKeyId>\
        <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
        <Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
        </AssumeRoleWithWebIdentityResponse>";
    let router = Router::new().route("/agent", get(async move || agent)).route("/", post(async move || sts));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_found_where_aws_looks_for_them() {
    let server = credentials_server().await;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let token = write("token", "a token");
    let profile =
        write("credentials", "[default]\naws_access_key_id = of-a-file\naws_secret_access_key = s\n");
    let agent = format!("{server}/agent");
    let cases: [(&str, &[(&str, &str)]); 4] = [
        ("environment", &[("AWS_ACCESS_KEY_ID", "of-the-environment"), ("AWS_SECRET_ACCESS_KEY", "s")]),
        ("profile", &[("AWS_SHARED_CREDENTIALS_FILE", &profile)]),
        (
            "web identity",
            &[
                ("AWS_WEB_IDENTITY_TOKEN_FILE", &token),
                ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/test"),
                ("AWS_ENDPOINT_URL_STS", &server),
            ],
        ),
        ("container", &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &agent)]),
    ];
    for (kind, environment) in cases {
        let told = program("eu-west-1", environment);
        assert!(told.ends_with("Connection refused (os error 111)"), "{kind}: {told}");
    }
}

/// Gives credentials when it is told to, and counts how often it was asked.
#[derive(Clone, Debug, Default)]
struct Slow(Arc<(Notify, AtomicU32)>);

impl ProvideCredentials for Slow {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let (answer, asked) = &*self.0;
            asked.fetch_add(1, Ordering::Relaxed);
            answer.notified().await;
            Ok(Credentials::new("key", "secret", None, None, "test"))
        })
    }
}

#[tokio::test]
async fn credentials_that_take_longer_than_a_call_are_there_for_a_later_one() {
    let slow = Slow::default();
    let loader = aws_config::defaults(BehaviorVersion::latest()).credentials_provider(slow.clone());
    let limits = Limits::within(Duration::from_millis(500));
    let client = Settings { limits, ..settings(Some("eu-west-1")) }.connect_with(loader).await.unwrap();
    let call = async |client: &Client| {
        let request = client.sdk().describe_table().table_name(client.table());
        let sent = client.call(Class::Urgent, Action::DescribeTable, || request.clone().send()).await;
        sent.map(drop).unwrap_err().why
    };
    let late = call(&client).await;
    assert!(matches!(late, Why::TimedOut { .. }), "{late}");
    slow.0.0.notify_one();
    let sent = call(&client.with_total(Duration::from_secs(60))).await;
    assert!(matches!(sent, Why::Away { .. }), "{sent}");
    assert_eq!(slow.0.1.load(Ordering::Relaxed), 1);
}

/// The program itself, when the test binary was started for it.
#[test]
#[ignore = "started by the tests above"]
fn the_program_of_the_tests_above() {
    let Ok(region) = std::env::var(FLAG) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = match settings(Some(region.as_str()).filter(|region| !region.is_empty())).connect().await
        {
            Ok(client) => client,
            Err(refused) => return println!("told: {refused}"),
        };
        let request = client.sdk().query().table_name(client.table()).key_condition_expression("pk = :pk");
        match client.query(Class::Bulk, request).await {
            Ok(_) => println!("told: nothing"),
            Err(failed) => println!("told: {failed}"),
        }
    });
}

#[test]
fn a_call_leaves_room_for_a_second_try() {
    let Limits { connect, attempt, total } = Limits::within(Duration::from_millis(1_500));
    assert_eq!((connect, attempt, total).0, Duration::from_millis(300));
    assert!(connect * 2 <= attempt);
    assert!(attempt * 2 < total);
}

#[test]
fn a_name_that_no_table_can_have_is_refused() {
    for good in ["abc", "global-discovery-mcs", "A.b_c-9", &"a".repeat(255)] {
        assert_eq!(table_name(good).as_deref(), Ok(good));
    }
    for bad in ["", "ab", "a b", "a/b", "täble", "abc\n", &"a".repeat(256)] {
        let why = "the name of a table is 3 to 255 of a-z, A-Z, 0-9, '_', '-' and '.'";
        assert_eq!(table_name(bad), Err(why.to_owned()), "{bad}");
    }
}

#[test]
fn an_endpoint_is_a_url_without_credentials() {
    for (given, taken) in [
        ("http://localhost:8000", "http://localhost:8000"),
        ("https://dynamodb.example.com/", "https://dynamodb.example.com"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ] {
        assert_eq!(endpoint(given).as_deref(), Ok(taken));
    }
    let form = "not a URL of scheme and host, as in http://localhost:8000";
    for bad in
        ["", "localhost", "localhost:8000", "ftp://localhost", "http://", "http://a/path", "http://a/?query"]
    {
        assert_eq!(endpoint(bad), Err(form.to_owned()), "{bad}");
    }
    let secret = endpoint("http://user:secret@localhost").unwrap_err();
    assert_eq!(secret, "credentials are not given in the URL: they are AWS's, by its default chain");
}
