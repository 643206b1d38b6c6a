//! Cluster state: ingest of watch events, indexes, snapshots
