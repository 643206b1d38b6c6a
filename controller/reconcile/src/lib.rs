//! Kubernetes glue: watches, controllers, executor, leader election
