use std::process::Command as Process;

use super::*;

/// Set for a copy of the test binary that only reads its flags; see [`run_with`].
const ONLY_PARSE: &str = "MCS_RUNTIME_TEST_ARGS";

#[derive(Debug, PartialEq, clap::Parser)]
#[command(name = "sample", about = "A program for tests")]
struct Sample {
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    admin: AdminArgs,
    /// How long
    #[arg(long, default_value = "30s", value_parser = duration)]
    lease: Duration,
    /// Which ones
    #[arg(long)]
    url: Vec<String>,
    /// Which
    #[arg(long, required_unless_present = "quick")]
    table: Option<String>,
    /// Whether
    #[arg(long)]
    quick: bool,
    #[command(subcommand)]
    act: Option<Act>,
}

#[derive(Debug, PartialEq, clap::Subcommand)]
enum Act {
    /// Describes
    Describe {
        /// What
        #[arg(long)]
        what: String,
    },
}

impl Check for Sample {
    fn check(&self) -> Result<(), String> {
        if self.lease.is_zero() { Err("--lease must be above zero".to_owned()) } else { Ok(()) }
    }
}

#[test]
fn every_flag_has_a_variable() {
    let mut command = command::<Sample>(&MCS);
    command.build();
    let without: Vec<_> = all_args(&command)
        .into_iter()
        .filter(|arg| {
            arg.get_env().is_none() && !matches!(arg.get_id().as_str(), "help" | "version" | "subcommand")
        })
        .collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn bad_flags_are_refused_in_one_line_that_says_which_and_why() {
    let table: &[(&[&str], &str)] = &[
        (&["--tabel=x"], "unexpected argument '--tabel' found; tip: a similar argument exists: '--table'"),
        (&[], "the following required arguments were not provided: --table <TABLE>"),
        (&["--table="], "the value of --table is empty"),
        (&["--table", ""], "the value of --table is empty"),
        (&["--quick", "--url=a,,b"], "the value of --url is empty"),
        (
            &["--quick", "--log-format=xml"],
            "invalid value 'xml' for '--log-format <LOG_FORMAT>' [possible values: text, json]",
        ),
        (
            &["--quick", "--log-level=loud"],
            "invalid value 'loud' for '--log-level <LEVEL>': \
             'loud' is not one of off, error, warn, info, debug, trace",
        ),
        (
            &["--quick", "--lease=5"],
            "invalid value '5' for '--lease <LEASE>': \
             time unit needed, for example 5sec or 5ms, as in 30s or 1m 30s",
        ),
        (&["--quick", "--lease=0s"], "--lease must be above zero"),
        (
            &["--quick", "--admin-listen=:::8080"],
            "invalid value ':::8080' for '--admin-listen <ADDRESS:PORT>': \
             an IPv6 address goes in brackets: [::]:8080",
        ),
        (&["--quick", "extra"], "unrecognized subcommand 'extra'"),
        (&["--quick", "describe", "--what="], "the value of --what is empty"),
    ];
    let expected: Vec<_> = table
        .iter()
        .map(|(_, why)| Err(Stop::Refused(format!("sample: {why} (see sample --help)"))))
        .collect();
    let found: Vec<_> = table.iter().map(|(flags, _)| parse_flags(flags)).collect();
    assert_eq!(found, expected);
}

#[test]
fn good_flags_are_read() {
    let flags = [
        "--quick",
        "--url=a,b",
        "--url=c",
        "--lease=1m 30s",
        "--log-format=JSON",
        "--admin-listen=127.0.0.1:0",
    ];
    let expected = Sample {
        logs: LogArgs { log_format: LogFormat::Json, log_level: LogFilter::default() },
        admin: AdminArgs { admin_listen: "127.0.0.1:0".parse().unwrap() },
        lease: Duration::from_secs(90),
        url: ["a", "b", "c"].map(str::to_owned).to_vec(),
        table: None,
        quick: true,
        act: None,
    };
    assert_eq!(parse_flags(&flags), Ok(expected));
}

#[test]
fn help_and_version_are_shown() {
    let Err(Stop::Shown(help)) = parse_flags(&["--help"]) else { panic!("help expected") };
    assert!(help.contains("[env: DYN_MCS_ADMIN_LISTEN=]"), "{help}");
    let version = format!("sample {}\n", crate::version());
    assert_eq!(parse_flags(&["--version"]), Err(Stop::Shown(version)));
}

#[test]
fn an_address_without_brackets_or_port_is_refused_with_what_to_write() {
    let texts = [":::8080", "::1:80", "::1", "[::1]", "1.2.3.4", "localhost:80", ":80", "1.2.3.4:99999"];
    let found = texts.map(|text| text.parse::<Listen>());
    let brackets =
        |host: &str, port: &str| Err(BadAddress::Brackets { host: host.into(), port: port.into() });
    let (no_port, form) = (Err(BadAddress::NoPort), Err(BadAddress::Form));
    let expected = [
        brackets("::", "8080"),
        brackets("::1", "80"),
        no_port.clone(),
        no_port.clone(),
        no_port,
        form.clone(),
        form.clone(),
        form,
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_taken_port_is_told_with_its_address() {
    let first = "127.0.0.1:0".parse::<Listen>().unwrap().bind().await.unwrap();
    let address = first.local_addr().unwrap();
    let error = Listen(address).bind().await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on {address}"));
}

#[tokio::test]
async fn the_unspecified_address_takes_ipv4() {
    let listener = "[::]:0".parse::<Listen>().unwrap().bind().await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let (accepted, connected) = tokio::join!(listener.accept(), client);
    assert!(accepted.is_ok() && connected.is_ok());
}

#[test]
fn variables_are_read_and_refused_like_flags() {
    let refused = |why: &str| (2, String::new(), format!("sample: {why} (see sample --help)\n"));
    let table = [
        (
            vec![("DYN_GDS_QUICK", "true"), ("DYN_GDS_URL", "a,b")],
            (0, "url [\"a\", \"b\"] level info\n".into(), String::new()),
        ),
        (
            vec![("DYN_GDS_QUICK", "true"), ("DYN_LOG", "debug")],
            (0, "url [] level debug\n".into(), String::new()),
        ),
        (
            vec![("DYN_GDS_QUICK", "true"), ("DYN_LOG", "debug"), ("DYN_GDS_LOG_LEVEL", "warn")],
            (0, "url [] level warn\n".into(), String::new()),
        ),
        (
            vec![("DYN_GDS_QUICK", "true"), ("DYN_GDS_LEASE", "soon")],
            refused(
                "invalid value 'soon' for '--lease <LEASE>': \
                 expected number at 0, as in 30s or 1m 30s (set by DYN_GDS_LEASE)",
            ),
        ),
        (vec![("DYN_GDS_TABLE", "")], refused("the value of DYN_GDS_TABLE (--table) is empty")),
        (
            vec![("DYN_GDS_QUICK", "true"), ("DYN_LOG", "")],
            refused(
                "invalid value '' for '--log-level <LEVEL>': \
                 '' is not one of off, error, warn, info, debug, trace (set by DYN_LOG)",
            ),
        ),
    ];
    let found: Vec<_> = table.iter().map(|(variables, _)| run_with(variables)).collect();
    let expected: Vec<_> = table.into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(found, expected);
}

/// The sample program itself, when the test binary was started for it.
#[test]
#[ignore = "started by the test above"]
fn the_sample_program_of_the_test_above() {
    if std::env::var_os(ONLY_PARSE).is_none() {
        return;
    }
    let code = match try_parse::<Sample>(&GDS, ["sample"]) {
        Ok(sample) => {
            let _ = writeln!(std::io::stdout(), "url {:?} level {}", sample.url, sample.logs.log_level);
            0
        }
        Err(stop) => stop.exit(),
    };
    std::process::exit(code);
}

fn parse_flags(flags: &[&str]) -> Result<Sample, Stop> {
    try_parse(&MCS, std::iter::once("sample").chain(flags.iter().copied()))
}

/// Exit code, standard output and standard error of the sample program without flags. The environment of a process
/// cannot be changed safely from within, so each case is a process of its own.
fn run_with(variables: &[(&str, &str)]) -> (i32, String, String) {
    let output = Process::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "--quiet",
            "--nocapture",
            "args::tests::the_sample_program_of_the_test_above",
        ])
        .env_clear()
        .env(ONLY_PARSE, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    // The test harness says first how many tests it runs.
    let stdout = stdout.trim_start().strip_prefix("running 1 test\n").unwrap_or(&stdout).to_owned();
    (output.status.code().unwrap(), stdout, String::from_utf8(output.stderr).unwrap())
}
