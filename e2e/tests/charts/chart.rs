//! The charts of this repository, and what one renders.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::helm::{self, repository};

/// A chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chart {
    /// Registry and controller.
    Mcs,
    /// The Global Discovery Service.
    Discovery,
}

/// What a chart renders.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// As helm writes it.
    pub text: String,
    /// The objects in it.
    pub objects: Vec<Value>,
}

impl Chart {
    /// Every chart.
    pub(crate) const ALL: [Self; 2] = [Self::Mcs, Self::Discovery];

    /// Its name, which is that of its folder.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mcs => "global-discovery-mcs",
            Self::Discovery => "global-discovery-service",
        }
    }

    /// The namespace that it is installed in by the documentation, and by its tests.
    pub(crate) fn namespace(self) -> &'static str {
        match self {
            Self::Mcs => "mcs-system",
            Self::Discovery => "global-discovery",
        }
    }

    /// The release of its tests.
    pub(crate) fn release(self) -> &'static str {
        match self {
            Self::Mcs => "mcs",
            Self::Discovery => "global-discovery",
        }
    }

    /// Where it is.
    pub(crate) fn folder(self) -> PathBuf {
        repository("charts").join(self.name())
    }

    /// A file of it.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn file(self, name: &str) -> Result<String> {
        let path = self.folder().join(name);
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// Renders it with values in YAML.
    ///
    /// # Errors
    /// Helm's words, when it refuses the values.
    pub(crate) fn render(self, values: &str) -> Result<Rendered, String> {
        let text = helm::template(&self.folder(), self.release(), self.namespace(), values)?;
        let objects = objects(&text).map_err(|error| format!("what is rendered is no YAML: {error:#}"))?;
        Ok(Rendered { text, objects })
    }
}

/// The objects of a text of many YAML documents.
///
/// # Errors
/// It is no YAML.
pub(crate) fn objects(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Option<Value>> = serde_saphyr::from_multiple(text)?;
    Ok(documents.into_iter().flatten().filter(|document| !document.is_null()).collect())
}

impl Rendered {
    /// The object that `<kind>/<name>` names, or with a namespace `<kind>/<namespace>/<name>`.
    pub(crate) fn find(&self, name: &str) -> Option<&Value> {
        self.objects.iter().find(|object| is_called(object, name))
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> Vec<String> {
        self.objects.iter().map(name_of).collect()
    }
}

/// `<kind>/<name>` of an object.
pub(crate) fn name_of(object: &Value) -> String {
    format!("{}/{}", text_at(object, "/kind"), text_at(object, "/metadata/name"))
}

fn is_called(object: &Value, name: &str) -> bool {
    let namespace = text_at(object, "/metadata/namespace");
    let full = format!("{}/{namespace}/{}", text_at(object, "/kind"), text_at(object, "/metadata/name"));
    name == name_of(object) || name == full
}

/// A text in a value, empty where there is none.
pub(crate) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A list in a value, empty where there is none.
pub(crate) fn list_at<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
