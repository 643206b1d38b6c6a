//! Integration tests, one target per level
