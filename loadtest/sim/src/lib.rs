//! Simulators of AWS, the Kubernetes API, kubelets and the kube-scheduler

pub mod aws;
pub mod kube;
pub mod kubelet;
pub mod scheduler;
pub mod workloads;
