//! The millwright command for people: plan, convert, crds
