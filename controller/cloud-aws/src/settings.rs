//! What the adapter is told at start.

use millwright_cloud::instance_types::CapacitySettings;

/// Settings of the AWS adapter.
#[derive(Clone, Debug)]
pub struct AwsSettings {
    /// Name of the cluster.
    pub cluster_name: String,
    /// URL of the API server for nodes; read from EKS when absent.
    pub cluster_endpoint: Option<String>,
    /// Base64 of the certificate authority for nodes; read from EKS when absent.
    pub cluster_ca_bundle: Option<String>,
    /// Version of the control plane (`1.34`), from the API server; EKS is asked when absent.
    pub kubernetes_version: Option<String>,
    /// Address of the cluster's DNS service, if known.
    pub cluster_dns: Option<String>,
    /// Overheads of instance types.
    pub capacity: CapacitySettings,
    /// No calls to IAM and the price list (`ISOLATED_VPC`).
    pub isolated_vpc: bool,
    /// Skip the permission checks of classes (`DISABLE_DRY_RUN`).
    pub disable_dry_run: bool,
    /// How often images are looked up again, milliseconds.
    pub image_refresh_ms: u64,
    /// How often subnets are looked up again, milliseconds.
    pub subnet_refresh_ms: u64,
}
