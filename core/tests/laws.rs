//! What holds for every input of the pure parts of the core: names, validation, content hashes, the merge and the
//! conditions. Properties first, then the rules one by one, as tables.

#[path = "laws/build.rs"]
mod build;
#[path = "laws/conditions.rs"]
mod conditions;
#[path = "laws/leaf.rs"]
mod leaf;
#[path = "laws/merge.rs"]
mod merge;
#[path = "laws/merge_example.rs"]
mod merge_example;
#[path = "laws/merge_rules.rs"]
mod merge_rules;
#[path = "laws/names.rs"]
mod names;
#[path = "laws/packed.rs"]
mod packed;
#[path = "laws/validate.rs"]
mod validate;
