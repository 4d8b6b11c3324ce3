use std::convert::Infallible;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, future};
use axum::Router;
use axum::routing::{get, post};
use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::Notify;

use super::*;
use crate::dynamodb::{Action, Class, Why};
use crate::tls::testing::{Ca, Issued};

/// Set for a copy of the test binary that is the program under test; the region that it is given by its flag, if any.
const FLAG: &str = "MCS_RUNTIME_TEST_REGION";

/// The endpoint that it is given by its flag, if any.
const ENDPOINT: &str = "MCS_RUNTIME_TEST_ENDPOINT";

/// A port where nobody listens.
const NOBODY: &str = "http://127.0.0.1:9";

/// Credentials that any endpoint of these tests takes.
const CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "do-not-show")];

const FLAGS: Flags = Flags { table: "--dynamodb-table", region: "--region", endpoint: "--dynamodb-endpoint" };

fn settings(region: Option<&str>) -> Settings {
    Settings {
        table: "table-of-tests".to_owned(),
        region: region.map(str::to_owned),
        endpoint: Some(NOBODY.to_owned()),
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
        .env(ENDPOINT, NOBODY)
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
fn credentials_of_the_environment_are_used_with_an_endpoint_of_ones_own_and_told_to_nobody() {
    let told = program("eu-west-1", &CREDENTIALS);
    assert!(told.ends_with("Connection refused (os error 111)"), "{told}");
    assert!(!told.contains("do-not-show"), "{told}");
}

#[test]
fn without_the_flag_the_endpoint_is_that_of_the_environment() {
    for variable in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"] {
        let environment = [CREDENTIALS[0], CREDENTIALS[1], (ENDPOINT, ""), (variable, NOBODY)];
        let told = program("eu-west-1", &environment);
        assert!(told.ends_with("Connection refused (os error 111)"), "{variable}: {told}");
    }
}

/// Answers each request over TLS as a table without items does; its URL, and the PEM of its CA.
async fn tls_server() -> (String, String) {
    let ca = Ca::new("of a test");
    let Issued { cert, key } = ca.server(1);
    let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).map(Result::unwrap).collect();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service =
                    service_fn(async |_| Ok::<_, Infallible>(Response::new(r#"{"Items":[]}"#.to_owned())));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (format!("https://localhost:{port}"), ca.pem())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_over_tls_is_believed_by_the_cas_of_the_system_only() {
    let (url, ca) = tls_server().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ca).unwrap();
    let environment = [CREDENTIALS[0], CREDENTIALS[1], (ENDPOINT, url.as_str())];
    let told = program("eu-west-1", &environment);
    assert!(told.contains("DynamoDB cannot be used now"), "{told}");
    assert!(told.contains("certificate") && told.contains("UnknownIssuer"), "{told}");

    let cas = ("SSL_CERT_FILE", file.path().to_str().unwrap());
    assert_eq!(program("eu-west-1", &[&environment[..], &[cas]].concat()), "nothing");
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
        ("environment", &CREDENTIALS),
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
        let endpoint = std::env::var(ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty());
        let settings = settings(Some(region.as_str()).filter(|region| !region.is_empty()));
        let client = match (Settings { endpoint, ..settings }).connect().await {
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
    let limits = Limits::within(Duration::from_millis(1_500));
    let [connect, attempt, total] = [300, 600, 1_500].map(Duration::from_millis);
    assert_eq!(limits, Limits { connect, attempt, total });
    assert!(limits.connect * 2 <= limits.attempt && limits.attempt * 2 < limits.total);
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
