//! Facts about EC2 instance types, embedded
