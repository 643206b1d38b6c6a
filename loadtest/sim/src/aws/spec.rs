//! What a launch template, or RunInstances, says about instances to be made.
//!
//! Both use the same member names, so one parser serves both. Absent members stay absent
//! here; defaults are chosen where instances are made.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::ApiError;
use super::query::Params;
use super::tags::{self, Tags};

/// Bytes of user data before base64 (EC2 user guide).
const USER_DATA_MAX: usize = 16_384;

/// Parameters of instances.
#[derive(Debug, Clone, Default)]
pub struct LaunchSpec {
    /// `ami-...`.
    pub image_id: Option<String>,
    /// `m5.large`.
    pub instance_type: Option<String>,
    /// Base64, as it was sent.
    pub user_data: Option<String>,
    /// Name of an SSH key.
    pub key_name: Option<String>,
    /// Name or ARN of an instance profile.
    pub instance_profile: Option<String>,
    /// Groups outside of interfaces.
    pub security_group_ids: Vec<String>,
    /// Network interfaces.
    pub interfaces: Vec<InterfaceSpec>,
    /// Volumes.
    pub block_devices: Vec<BlockDevice>,
    /// `HttpTokens` and its siblings, by EC2's answer names, for members that were given.
    pub metadata_options: BTreeMap<&'static str, String>,
    /// Detailed monitoring.
    pub monitoring: bool,
    /// `default`, `dedicated`.
    pub tenancy: Option<String>,
    /// Placement group, by id or name.
    pub placement_group: Option<String>,
    /// Partition in it.
    pub partition: Option<u32>,
    /// `open`, `none`, `capacity-reservations-only`.
    pub reservation_preference: Option<String>,
    /// `cr-...`.
    pub reservation_id: Option<String>,
    /// EBS-optimised.
    pub ebs_optimized: bool,
    /// Nitro enclaves.
    pub enclave: bool,
    /// Tags by resource type.
    pub tags: BTreeMap<String, Tags>,
}

/// A network interface to be made.
#[derive(Debug, Clone, Default)]
pub struct InterfaceSpec {
    /// Network card.
    pub card: u32,
    /// Position on the card.
    pub device: u32,
    /// `interface`, `efa`, `efa-only`; absent means the first.
    pub kind: Option<String>,
    /// Groups.
    pub security_group_ids: Vec<String>,
    /// Where the request says so.
    pub subnet_id: Option<String>,
    /// Gets a public address.
    pub public_address: Option<bool>,
    /// IPv4 prefixes to be assigned.
    pub ipv4_prefixes: u32,
    /// The primary address is IPv6.
    pub primary_ipv6: bool,
}

/// A volume to be made.
#[derive(Debug, Clone, Default)]
pub struct BlockDevice {
    /// `/dev/xvda`.
    pub device: String,
    /// GiB.
    pub size_gib: Option<u64>,
    /// `gp3`.
    pub volume_type: Option<String>,
    /// Encrypted.
    pub encrypted: bool,
    /// Goes with the instance.
    pub delete_on_termination: bool,
}

/// Members of MetadataOptions: in requests, and in answers.
const METADATA_MEMBERS: [(&str, &str); 5] = [
    ("HttpTokens", "httpTokens"),
    ("HttpPutResponseHopLimit", "httpPutResponseHopLimit"),
    ("HttpEndpoint", "httpEndpoint"),
    ("HttpProtocolIpv6", "httpProtocolIpv6"),
    ("InstanceMetadataTags", "instanceMetadataTags"),
];

impl LaunchSpec {
    /// Reads the members of a launch template's data or of RunInstances.
    ///
    /// # Errors
    /// Malformed values, and user data that is not base64 or too long.
    pub(crate) fn parse(params: &Params) -> Result<Self, ApiError> {
        let metadata_options = METADATA_MEMBERS
            .into_iter()
            .filter_map(|(member, answer)| {
                Some((answer, params.string(&format!("MetadataOptions.{member}"))?))
            })
            .collect();
        let profile = "IamInstanceProfile";
        Ok(Self {
            image_id: params.string("ImageId"),
            instance_type: params.string("InstanceType"),
            user_data: user_data(params)?,
            key_name: params.string("KeyName"),
            instance_profile: params
                .string(&format!("{profile}.Name"))
                .or_else(|| params.string(&format!("{profile}.Arn"))),
            security_group_ids: params.strings("SecurityGroupId"),
            interfaces: params
                .list("NetworkInterface")
                .into_iter()
                .map(InterfaceSpec::parse)
                .collect::<Result<_, _>>()?,
            block_devices: params
                .list("BlockDeviceMapping")
                .into_iter()
                .map(BlockDevice::parse)
                .collect::<Result<_, _>>()?,
            metadata_options,
            monitoring: params.flag("Monitoring.Enabled")?.unwrap_or(false),
            tenancy: params.string("Placement.Tenancy"),
            placement_group: params
                .string("Placement.GroupId")
                .or_else(|| params.string("Placement.GroupName")),
            partition: params.number("Placement.PartitionNumber")?,
            reservation_preference: params
                .string("CapacityReservationSpecification.CapacityReservationPreference"),
            reservation_id: params.string(
                "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
            ),
            ebs_optimized: params.flag("EbsOptimized")?.unwrap_or(false),
            enclave: params.flag("EnclaveOptions.Enabled")?.unwrap_or(false),
            tags: tags::specifications(params)?,
        })
    }

    /// Every security group named anywhere, with repetitions.
    pub(crate) fn all_groups(&self) -> impl Iterator<Item = &str> {
        self.security_group_ids
            .iter()
            .chain(
                self.interfaces
                    .iter()
                    .flat_map(|interface| &interface.security_group_ids),
            )
            .map(String::as_str)
    }

    /// Lays what a request says over what its launch template says. Lists are replaced as a
    /// whole, tags are united with those of the request in front.
    pub(crate) fn overlaid_by(&self, over: &Self) -> Self {
        let either = |over: &Option<String>, under: &Option<String>| {
            over.as_ref().or(under.as_ref()).cloned()
        };
        let list = |over: &Vec<String>, under: &Vec<String>| {
            if over.is_empty() {
                under.clone()
            } else {
                over.clone()
            }
        };
        let mut tags = self.tags.clone();
        for (resource, over) in &over.tags {
            tags.entry(resource.clone())
                .or_default()
                .extend(over.clone());
        }
        let mut metadata_options = self.metadata_options.clone();
        metadata_options.extend(over.metadata_options.clone());
        Self {
            image_id: either(&over.image_id, &self.image_id),
            instance_type: either(&over.instance_type, &self.instance_type),
            user_data: either(&over.user_data, &self.user_data),
            key_name: either(&over.key_name, &self.key_name),
            instance_profile: either(&over.instance_profile, &self.instance_profile),
            security_group_ids: list(&over.security_group_ids, &self.security_group_ids),
            interfaces: if over.interfaces.is_empty() {
                self.interfaces.clone()
            } else {
                over.interfaces.clone()
            },
            block_devices: if over.block_devices.is_empty() {
                self.block_devices.clone()
            } else {
                over.block_devices.clone()
            },
            metadata_options,
            monitoring: over.monitoring || self.monitoring,
            tenancy: either(&over.tenancy, &self.tenancy),
            placement_group: either(&over.placement_group, &self.placement_group),
            partition: over.partition.or(self.partition),
            reservation_preference: either(
                &over.reservation_preference,
                &self.reservation_preference,
            ),
            reservation_id: either(&over.reservation_id, &self.reservation_id),
            ebs_optimized: over.ebs_optimized || self.ebs_optimized,
            enclave: over.enclave || self.enclave,
            tags,
        }
    }
}

impl InterfaceSpec {
    fn parse(params: &Params) -> Result<Self, ApiError> {
        Ok(Self {
            card: params.number("NetworkCardIndex")?.unwrap_or(0),
            device: params.number("DeviceIndex")?.unwrap_or(0),
            kind: params.string("InterfaceType"),
            security_group_ids: params.strings("SecurityGroupId"),
            subnet_id: params.string("SubnetId"),
            public_address: params.flag("AssociatePublicIpAddress")?,
            ipv4_prefixes: params.number("Ipv4PrefixCount")?.unwrap_or(0),
            primary_ipv6: params.flag("PrimaryIpv6")?.unwrap_or(false),
        })
    }
}

impl BlockDevice {
    fn parse(params: &Params) -> Result<Self, ApiError> {
        Ok(Self {
            device: params.required("DeviceName")?.to_owned(),
            size_gib: params.number("Ebs.VolumeSize")?,
            volume_type: params.string("Ebs.VolumeType"),
            encrypted: params.flag("Ebs.Encrypted")?.unwrap_or(false),
            delete_on_termination: params.flag("Ebs.DeleteOnTermination")?.unwrap_or(true),
        })
    }
}

fn user_data(params: &Params) -> Result<Option<String>, ApiError> {
    let Some(text) = params.text("UserData") else {
        return Ok(None);
    };
    let decoded = STANDARD.decode(text.trim()).map_err(|_| {
        ApiError::new(
            "InvalidUserData.Malformed",
            "Invalid BASE64 encoding of user data.",
        )
    })?;
    if decoded.len() > USER_DATA_MAX {
        return Err(ApiError::new(
            "InvalidUserData.Malformed",
            format!("User data is limited to {USER_DATA_MAX} bytes"),
        ));
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::LaunchSpec;
    use crate::aws::query::Params;

    fn spec(form: &str) -> LaunchSpec {
        LaunchSpec::parse(&Params::parse(form.as_bytes()).expect("form")).expect("valid")
    }

    #[test]
    fn overrides_win_and_absent_members_stay() {
        let template = spec(
            "ImageId=ami-1&SecurityGroupId.1=sg-1&TagSpecification.1.ResourceType=instance\
             &TagSpecification.1.Tag.1.Key=a&TagSpecification.1.Tag.1.Value=1\
             &MetadataOptions.HttpTokens=required",
        );
        let merged = template.overlaid_by(&spec(
            "ImageId=ami-2&TagSpecification.1.ResourceType=instance\
             &TagSpecification.1.Tag.1.Key=b&TagSpecification.1.Tag.1.Value=2",
        ));
        assert_eq!(merged.image_id.as_deref(), Some("ami-2"));
        assert_eq!(merged.security_group_ids, ["sg-1"]);
        assert_eq!(merged.tags["instance"].len(), 2);
        assert_eq!(merged.metadata_options["httpTokens"], "required");
    }

    #[test]
    fn user_data_is_bounded_and_must_be_base64() {
        let code = |data: String| {
            let params = Params::parse(format!("UserData={data}").as_bytes()).expect("form");
            LaunchSpec::parse(&params).map_err(|error| error.message)
        };
        assert!(code("QUJD".to_owned()).is_ok());
        assert!(code("!!".to_owned()).is_err());
        let error = code("QUFB".repeat(5_462)).expect_err("16,386 bytes");
        assert!(error.contains("User data is limited to"));
    }
}
