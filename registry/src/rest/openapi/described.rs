//! What the proto files say of messages, enums and methods, comments included.

use std::collections::BTreeMap;

use mcs_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};

use super::Undescribed;

/// The package that is described.
const PACKAGE: &str = "dynamo.mcs.v1";

// Numbers of fields within `google.protobuf.FileDescriptorProto` and what is in it: places of comments consist of them.
const MESSAGES: i32 = 4;
const ENUMS: i32 = 5;
const SERVICES: i32 = 6;
const INNER: i32 = 2;

/// The messages, enums and services of the package, by name.
#[derive(Debug, Default)]
pub(super) struct Described {
    messages: BTreeMap<String, Message>,
    enums: BTreeMap<String, Enumeration>,
    /// Comments of services, and of methods as `Members.Register`.
    comments: BTreeMap<String, String>,
}

/// A message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) comment: String,
    pub(super) fields: Vec<Field>,
    /// Fields of which at most one is set.
    pub(super) choices: Vec<Vec<String>>,
}

/// A field.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The JSON name.
    pub(super) name: String,
    pub(super) comment: String,
    pub(super) kind: Kind,
    pub(super) is_list: bool,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bytes,
    Bool,
    /// 32 bits.
    Number,
    /// 64 bits.
    Long,
    Time,
    Duration,
    /// Texts by text.
    Texts,
    /// A message or an enum.
    Named(String),
}

/// An enum.
#[derive(Clone, Debug)]
pub(super) struct Enumeration {
    pub(super) comment: String,
    /// Names and comments.
    pub(super) values: Vec<(String, String)>,
}

impl Described {
    /// Reads the descriptors.
    pub(super) fn read() -> Result<Self, Undescribed> {
        let mut described = Self::default();
        for file in FileDescriptorSet::decode(FILE_DESCRIPTOR_SET)?.file {
            if file.package() == PACKAGE {
                described.add(&file)?;
            }
        }
        Ok(described)
    }

    /// A message by its name.
    pub(super) fn message(&self, name: &str) -> Result<&Message, Undescribed> {
        self.messages.get(name).ok_or_else(|| Undescribed::Name(name.to_owned()))
    }

    /// An enum by its name.
    pub(super) fn enumeration(&self, name: &str) -> Result<&Enumeration, Undescribed> {
        self.enums.get(name).ok_or_else(|| Undescribed::Name(name.to_owned()))
    }

    /// A field by its JSON name.
    pub(super) fn field(&self, message: &str, name: &str) -> Result<&Field, Undescribed> {
        let fields = &self.message(message)?.fields;
        let unknown = || Undescribed::Name(format!("{message}.{name}"));
        fields.iter().find(|field| field.name == name).ok_or_else(unknown)
    }

    /// What is said of a method.
    pub(super) fn comment_of_method(&self, name: &str) -> Result<String, Undescribed> {
        self.comments.get(name).cloned().ok_or_else(|| Undescribed::Name(name.to_owned()))
    }

    /// What is said of a service.
    pub(super) fn comment_of_service(&self, name: &str) -> &str {
        self.comments.get(name).map_or("", String::as_str)
    }

    fn add(&mut self, file: &FileDescriptorProto) -> Result<(), Undescribed> {
        let comments = Comments::of(file);
        for (place, message) in (0..).zip(&file.message_type) {
            let read = read_message(message, &comments, place)?;
            self.messages.insert(message.name().to_owned(), read);
        }
        for (place, enumeration) in (0..).zip(&file.enum_type) {
            let read = read_enum(enumeration, &comments, place);
            self.enums.insert(enumeration.name().to_owned(), read);
        }
        for (place, service) in (0..).zip(&file.service) {
            self.add_service(service, &comments, place);
        }
        Ok(())
    }

    fn add_service(&mut self, service: &ServiceDescriptorProto, comments: &Comments, place: i32) {
        self.comments.insert(service.name().to_owned(), comments.at(&[SERVICES, place]));
        for (inner, method) in (0..).zip(&service.method) {
            let name = format!("{}.{}", service.name(), method.name());
            self.comments.insert(name, comments.at(&[SERVICES, place, INNER, inner]));
        }
    }
}

fn read_enum(described: &EnumDescriptorProto, comments: &Comments, place: i32) -> Enumeration {
    let values = (0..)
        .zip(&described.value)
        .map(|(inner, value)| (value.name().to_owned(), comments.at(&[ENUMS, place, INNER, inner])));
    Enumeration { comment: comments.at(&[ENUMS, place]), values: values.collect() }
}

fn read_message(
    described: &DescriptorProto,
    comments: &Comments,
    place: i32,
) -> Result<Message, Undescribed> {
    let mut message =
        Message { comment: comments.at(&[MESSAGES, place]), fields: Vec::new(), choices: Vec::new() };
    message.choices.resize(described.oneof_decl.len(), Vec::new());
    for (inner, field) in (0..).zip(&described.field) {
        let kind = kind(described, field)?;
        // What is optional is a choice of one, which says nothing.
        let choice = field.oneof_index.filter(|_| !field.proto3_optional()).map(usize::try_from);
        if let Some(choice) = choice.and_then(Result::ok).and_then(|choice| message.choices.get_mut(choice)) {
            choice.push(format!("`{}`", field.json_name()));
        }
        message.fields.push(Field {
            name: field.json_name().to_owned(),
            comment: comments.at(&[MESSAGES, place, INNER, inner]),
            is_list: field.label() == Label::Repeated && kind != Kind::Texts,
            kind,
        });
    }
    message.choices.retain(|choice| !choice.is_empty());
    Ok(message)
}

fn kind(message: &DescriptorProto, field: &FieldDescriptorProto) -> Result<Kind, Undescribed> {
    let name = field.type_name();
    let own = name.strip_prefix('.').and_then(|name| name.strip_prefix(PACKAGE)?.strip_prefix('.'));
    let kind = match (field.r#type(), own) {
        (Type::String, _) => Kind::Text,
        (Type::Bytes, _) => Kind::Bytes,
        (Type::Bool, _) => Kind::Bool,
        (Type::Uint32, _) => Kind::Number,
        (Type::Uint64, _) => Kind::Long,
        (Type::Message, _) if name == ".google.protobuf.Timestamp" => Kind::Time,
        (Type::Message, _) if name == ".google.protobuf.Duration" => Kind::Duration,
        // The only messages within messages are entries of maps, and all maps are of texts.
        (Type::Message, Some(own)) if own.starts_with(&format!("{}.", message.name())) => Kind::Texts,
        (Type::Message | Type::Enum, Some(own)) => Kind::Named(own.to_owned()),
        _ => return Err(Undescribed::Name(format!("JSON for {}.{}", message.name(), field.name()))),
    };
    Ok(kind)
}

/// Comments of a file by their places.
struct Comments(BTreeMap<Vec<i32>, String>);

impl Comments {
    fn of(file: &FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        let told = locations.filter(|location| location.leading_comments.is_some());
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let paragraphs = |text: &str| text.split("\n\n").map(one_line).collect::<Vec<_>>().join("\n\n");
        Self(
            told.map(|location| {
                let paragraphed = location.leading_comments().replace("\n \n", "\n\n");
                (location.path.clone(), paragraphs(&paragraphed))
            })
            .collect(),
        )
    }

    fn at(&self, place: &[i32]) -> String {
        self.0.get(place).cloned().unwrap_or_default()
    }
}
