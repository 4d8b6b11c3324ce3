//! The configuration reference, docs/configuration.md, is what the programs' flags are. `make config` writes it anew.

use std::{fmt::Write as _, path::Path};

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, Command};
use mcs_runtime::args::{Environment, GDS, MCS, command};

/// What stands before the programs.
const HEAD: &str = "\
# Configuration

<!-- Written by `make config` from the flags of the programs. -->

Every program is configured by flags, and every flag has an environment variable; a flag that is given wins over its variable. `--help` says the same as this
page, and `--version` which build it is.

- A flag that takes a list may be repeated, and each value, like the variable, may be a comma-separated list.
- A switch has no value on the command line; its variable is `true` or `false`.
- A duration has a unit: `500ms`, `30s`, `1m 30s`.
- An address to listen on has a port, and brackets around IPv6: `[::]:8080`, `0.0.0.0:8080`.
- A flag that is unknown, empty, out of range, or that does not go with another one ends the program with exit code 2 and one line that names it.
";

#[test]
fn the_configuration_reference_names_every_flag_of_every_program() -> Result<()> {
    let reference = reference();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    if std::env::var_os("UPDATE_CONFIG").is_some() {
        std::fs::write(&path, &reference)?;
    }
    let written = std::fs::read_to_string(&path)?;
    ensure!(written == reference, "docs/configuration.md is not what the flags are: make config");
    Ok(())
}

fn reference() -> String {
    let programs = [
        (command::<mcs_registry::args::Args>(&MCS), MCS),
        (command::<mcs_controller::args::Args>(&MCS), MCS),
        (command::<mcs_admin::args::Args>(&MCS), MCS),
        (command::<global_discovery_service::args::Args>(&GDS), GDS),
    ];
    programs.iter().fold(HEAD.to_owned(), |text, (command, environment)| {
        text + &program(&format!("## {}", command.get_name()), command, environment)
    })
}

/// One program, or one of its subcommands.
fn program(title: &str, command: &Command, environment: &Environment) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("\n{title}\n\n{about}.\n");
    let subcommands: Vec<&Command> = command.get_subcommands().collect();
    if !subcommands.is_empty() {
        text.push_str("\n| subcommand | what it does |\n|---|---|\n");
        for subcommand in &subcommands {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "| `{}` | {} |", subcommand.get_name(), cell(&about));
        }
    }
    // In the order of `--help`: those without a heading first.
    let flags: Vec<&Arg> = command.get_arguments().filter(|arg| is_told(arg)).collect();
    let mut headings: Vec<Option<&str>> = vec![None];
    for flag in &flags {
        if !headings.contains(&flag.get_help_heading()) {
            headings.push(flag.get_help_heading());
        }
    }
    for heading in headings {
        let under: Vec<_> = flags.iter().filter(|flag| flag.get_help_heading() == heading).collect();
        if under.is_empty() {
            continue;
        }
        if let Some(heading) = heading {
            let _ = write!(text, "\n**{heading}**\n");
        }
        text.push_str("\n| flag | variable | default | what it says |\n|---|---|---|---|\n");
        under.iter().for_each(|flag| text.push_str(&row(flag, environment)));
    }
    for subcommand in subcommands.into_iter().filter(|subcommand| subcommand.get_arguments().any(is_told)) {
        let title = format!("### {} {}", command.get_name(), subcommand.get_name());
        text.push_str(&program(&title, subcommand, environment));
    }
    text
}

/// Whether a flag is one of the program's own.
fn is_told(arg: &Arg) -> bool {
    let action = arg.get_action();
    let is_of_all = [ArgAction::Help, ArgAction::HelpLong, ArgAction::HelpShort, ArgAction::Version]
        .iter()
        .any(|of_all| std::mem::discriminant(of_all) == std::mem::discriminant(action));
    !is_of_all && !arg.is_hide_set()
}

fn row(flag: &Arg, environment: &Environment) -> String {
    let long = flag.get_long().unwrap_or_default();
    let takes_value = flag.get_action().takes_values();
    let value = flag.get_value_names().filter(|_| takes_value).into_iter().flatten().next();
    let possible: Vec<String> =
        flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let value = match (takes_value, possible.is_empty(), value) {
        (true, false, _) => format!("={}", possible.join("\\|")),
        (true, true, Some(name)) => format!("={name}"),
        (true, true, None) | (false, ..) => String::new(),
    };
    let own = flag.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let other = environment.others.iter().find(|(of, _)| *of == long).map(|(_, name)| format!(", `{name}`"));
    let defaults: Vec<_> =
        flag.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    let default = if takes_value { defaults.join(", ") } else { "off".to_owned() };
    let told = flag.get_help().map(ToString::to_string).unwrap_or_default();
    format!("| `--{long}{value}` | `{own}`{} | {default} | {} |\n", other.unwrap_or_default(), cell(&told))
}

/// A text in one cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
