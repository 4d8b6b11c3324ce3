//! Some renderings as a whole, for who reads what a change of a template does. `make charts` writes them anew.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, anyhow, ensure};

use crate::{
    chart::{Chart, Rendered},
    helm::repository,
    laws,
};

/// Set by `make charts`: what is derived of the charts is written, not compared.
pub(crate) const UPDATE: &str = "UPDATE_CHARTS";

/// A rendering that is checked in.
pub(crate) struct Golden {
    /// The chart.
    pub chart: Chart,
    /// What it is called.
    pub name: String,
    /// The values, in YAML.
    pub values: String,
    /// Where the rendering is.
    path: PathBuf,
}

/// All of a chart.
///
/// # Errors
/// There is none.
pub(crate) fn goldens(chart: Chart) -> Result<Vec<Golden>> {
    let folder = repository("e2e/tests/charts/goldens").join(chart.name());
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut goldens = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(name) = file.strip_suffix(".values.yaml") {
            let values = fs::read_to_string(&path)?;
            let path = folder.join(format!("{name}.yaml"));
            goldens.push(Golden { chart, name: name.to_owned(), values, path });
        }
    }
    ensure!(!goldens.is_empty(), "no goldens in {}", folder.display());
    Ok(goldens)
}

impl Golden {
    /// Renders it anew.
    ///
    /// # Errors
    /// Helm refuses the values.
    pub(crate) fn render(&self) -> Result<Rendered> {
        self.chart.render(&self.values).map_err(|refusal| anyhow!("{}: {refusal}", self.name))
    }
}

#[test]
fn charts_render_what_is_checked_in() -> Result<()> {
    for chart in Chart::ALL {
        for golden in goldens(chart)? {
            let rendered = golden.render()?;
            laws::hold(&rendered).with_context(|| golden.name.clone())?;
            if std::env::var_os(UPDATE).is_some() {
                fs::write(&golden.path, &rendered.text)?;
            }
            let written = fs::read_to_string(&golden.path).unwrap_or_default();
            ensure!(
                written == rendered.text,
                "{} is not what the chart renders: make charts",
                golden.path.display()
            );
        }
    }
    Ok(())
}
