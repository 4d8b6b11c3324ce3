//! The REST port, to the letter: every answer is compared as a whole, and with what the OpenAPI document says of it.

mod document;
mod errors;
mod examples;
mod http;
mod limits;
mod lists;
mod paths;
mod schema;
mod streams;
mod writes;
