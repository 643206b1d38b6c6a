//! The library behind the `millwright` command: reading manifests, converting old ones, planning
//! on files. No cluster and no cloud is needed for any of it.

pub mod convert;
pub mod documents;
