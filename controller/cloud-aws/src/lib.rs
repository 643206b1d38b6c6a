//! The AWS adapter: the only crate that names the AWS SDK
