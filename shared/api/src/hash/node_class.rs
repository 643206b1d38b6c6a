//! Hash of an EC2NodeClass.

use serde_json::{Map, Value};

use super::digest::{Digest, Structure, boolean, int32, int64, list, text};
use crate::ec2_node_class::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, Ec2NodeClassSpec, InstanceStorePolicy,
    Kubelet, MetadataOptions, NetworkInterface, PlacementGroupSelector,
};

/// Value of the annotation `karpenter.k8s.aws/ec2nodeclass-hash-version`.
pub const NODE_CLASS_HASH_VERSION: &str = "v6";

/// The value of the annotation `karpenter.k8s.aws/ec2nodeclass-hash`: decimal, unsigned, 64 bits.
///
/// `ca_bundle` is the cluster's certificate authority as base64 text, empty if there is none.
#[must_use]
pub fn node_class_hash(class: &Ec2NodeClassSpec, ca_bundle: &str) -> String {
    list([
        spec(class),
        text(class.resolved_ami_family().as_str()),
        text(ca_bundle),
        text(&kubelet(class.kubelet.as_ref())),
    ])
    .to_string()
}

fn spec(class: &Ec2NodeClassSpec) -> Digest {
    let optional = |value: &Option<String>| value.as_deref().map(text);
    Structure::new("EC2NodeClassSpec")
        .field("PlacementGroupSelector", class.placement_group_selector.as_ref().map(placement))
        .field("AssociatePublicIPAddress", class.associate_public_ip_address.map(boolean))
        .field("UserData", optional(&class.user_data))
        // The role is a plain value, the profile a pointer.
        .text("Role", class.role.as_deref().unwrap_or_default())
        .field("InstanceProfile", optional(&class.instance_profile))
        .map("Tags", &class.tags)
        .list("BlockDeviceMappings", &class.block_device_mappings, mapping)
        .field("InstanceStorePolicy", class.instance_store_policy.map(store_policy))
        .list("NetworkInterfaces", &class.network_interfaces, interface)
        .field("DetailedMonitoring", class.detailed_monitoring.map(boolean))
        .field("MetadataOptions", class.metadata_options.as_ref().map(metadata))
        .field("ConnectionTracking", class.connection_tracking.as_ref().map(tracking))
        .field("Context", optional(&class.context))
        .field(
            "CPUOptions",
            class.cpu_options.as_ref().map(|options| {
                let nested = options.nested_virtualization.as_deref();
                Structure::new("CPUOptions").field("NestedVirtualization", nested.map(text)).digest()
            }),
        )
        .digest()
}

fn placement(selector: &PlacementGroupSelector) -> Digest {
    Structure::new("PlacementGroupSelector")
        .text("Name", &selector.name)
        .text("ID", &selector.id)
        .digest()
}

fn store_policy(policy: InstanceStorePolicy) -> Digest {
    match policy {
        InstanceStorePolicy::Raid0 => text("RAID0"),
    }
}

fn metadata(options: &MetadataOptions) -> Digest {
    Structure::new("MetadataOptions")
        .field("HTTPEndpoint", text(&options.http_endpoint))
        .field("HTTPProtocolIPv6", text(&options.http_protocol_ipv6))
        .field(
            "HTTPPutResponseHopLimit",
            int64(options.http_put_response_hop_limit),
        )
        .field("HTTPTokens", text(&options.http_tokens))
        .digest()
}

fn mapping(mapping: &BlockDeviceMapping) -> Digest {
    Structure::new("BlockDeviceMapping")
        .field("DeviceName", mapping.device_name.as_deref().map(text))
        .field("EBS", mapping.ebs.as_ref().map(device))
        .field("RootVolume", mapping.root_volume.then(|| boolean(true)))
        .digest()
}

fn device(device: &BlockDevice) -> Digest {
    Structure::new("BlockDevice")
        .field(
            "DeleteOnTermination",
            device.delete_on_termination.map(boolean),
        )
        .field("Encrypted", device.encrypted.map(boolean))
        .field("IOPS", device.iops.map(int64))
        .field("KMSKeyID", device.kms_key_id.as_deref().map(text))
        .field("SnapshotID", device.snapshot_id.as_deref().map(text))
        .field("Throughput", device.throughput.map(int64))
        .field(
            "VolumeInitializationRate",
            device.volume_initialization_rate.map(int32),
        )
        .field(
            "VolumeSize",
            device
                .volume_size
                .as_deref()
                .map(|size| text(&canonical_size(size))),
        )
        .field("VolumeType", device.volume_type.as_deref().map(text))
        .digest()
}

fn interface(interface: &NetworkInterface) -> Digest {
    let index = |value: i32| (value != 0).then(|| int32(value));
    Structure::new("NetworkInterface")
        .field("NetworkCardIndex", index(interface.network_card_index))
        .field("DeviceIndex", index(interface.device_index))
        .text("InterfaceType", interface.interface_type.as_str())
        .digest()
}

fn tracking(tracking: &ConnectionTracking) -> Digest {
    Structure::new("ConnectionTracking")
        .field(
            "TCPEstablishedTimeout",
            tracking.tcp_established_timeout.map(int32),
        )
        .field("UDPStreamTimeout", tracking.udp_stream_timeout.map(int32))
        .field("UDPTimeout", tracking.udp_timeout.map(int32))
        .digest()
}

/// The size as Kubernetes writes it: the largest suffix that leaves a whole number.
///
/// Knows the suffixes that the schema admits; anything else is returned as it is.
fn canonical_size(size: &str) -> String {
    let split = size
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(size.len());
    let (number, suffix) = size.split_at(split);
    let (step, suffixes): (u64, &[&str]) = match suffix {
        "Gi" | "Ti" => (1024, &["Gi", "Ti", "Pi", "Ei"]),
        "G" | "T" => (1000, &["G", "T", "P", "E"]),
        _ => return size.to_owned(),
    };
    let Ok(mut number) = number.parse::<u64>() else {
        return size.to_owned();
    };
    let mut rest = suffixes.iter().skip_while(|s| **s != suffix).peekable();
    let mut current = suffix;
    while let Some(next) = rest.next() {
        current = next;
        if number == 0 || !number.is_multiple_of(step) || rest.peek().is_none() {
            break;
        }
        number /= step;
    }
    format!("{number}{current}")
}

/// Canonical JSON: keys sorted at every level, no spaces, `null` for nothing.
fn kubelet(kubelet: Option<&Kubelet>) -> String {
    let mut out = String::new();
    match kubelet {
        Some(Kubelet(settings)) if !settings.is_empty() => write_object(settings, &mut out),
        _ => out.push_str("null"),
    }
    out
}

fn write_object(object: &Map<String, Value>, out: &mut String) {
    let mut entries: Vec<_> = object.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    out.push('{');
    for (ord, (key, value)) in entries.into_iter().enumerate() {
        if ord > 0 {
            out.push(',');
        }
        write_text(key, out);
        out.push(':');
        write_value(value, out);
    }
    out.push('}');
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(object) => write_object(object, out),
        Value::Array(elements) => {
            out.push('[');
            for (ord, element) in elements.iter().enumerate() {
                if ord > 0 {
                    out.push(',');
                }
                write_value(element, out);
            }
            out.push(']');
        }
        Value::String(value) => write_text(value, out),
        other => out.push_str(&other.to_string()),
    }
}

/// A JSON string with the characters escaped that Go escapes for the sake of HTML.
fn write_text(value: &str, out: &mut String) {
    for c in Value::from(value).to_string().chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2_node_class::AmiFamily;
    use serde_json::json;

    /// The class of the specification's test vectors.
    fn class() -> Ec2NodeClassSpec {
        serde_json::from_value(json!({
            "subnetSelectorTerms": [], "securityGroupSelectorTerms": [], "amiSelectorTerms": [],
            "role": "role-1",
            "tags": {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"},
            "context": "fake-context",
            "detailedMonitoring": false,
            "associatePublicIPAddress": false,
            "metadataOptions": {
                "httpEndpoint": "disabled", "httpProtocolIPv6": "disabled",
                "httpPutResponseHopLimit": 1, "httpTokens": "optional"
            },
            "blockDeviceMappings": [
                {"deviceName": "map-device-1", "ebs": {
                    "deleteOnTermination": false, "encrypted": false, "iops": 0,
                    "kmsKeyID": "fakeKMSKeyID", "snapshotID": "fakeSnapshot", "throughput": 0,
                    "volumeSize": "2G", "volumeType": "standard"
                }},
                {"deviceName": "map-device-2"}
            ],
            "userData": "userdata-test-1"
        }))
        .unwrap()
    }

    fn changed(change: impl FnOnce(&mut Ec2NodeClassSpec)) -> String {
        let mut class = class();
        change(&mut class);
        node_class_hash(&class, "test-ca-bundle")
    }

    fn volume_size(size: &str) -> String {
        changed(|c| {
            let ebs = c.block_device_mappings[0].ebs.as_mut().unwrap();
            ebs.volume_size = Some(size.into());
        })
    }

    #[test]
    fn hashes_equal_the_vectors_of_the_specification() {
        assert_eq!(changed(|_| ()), "11148166120438674859");
        let user_data = changed(|c| c.user_data = Some("userdata-test-2".into()));
        assert_eq!(user_data, "11774429238106843388");
        assert_eq!(
            changed(|c| c.context = Some("context-2".into())),
            "2279761750428738028"
        );
        let raid = changed(|c| c.instance_store_policy = Some(InstanceStorePolicy::Raid0));
        assert_eq!(raid, "16697988646989909967");
        assert_eq!(volume_size("10G"), "10372902467896351912");
        let profile = changed(|c| {
            c.role = None;
            c.instance_profile = Some("test-instance-profile".into());
        });
        assert_eq!(profile, "10323991363677716244");
        let tracking = changed(|c| {
            let timeout = Some(300);
            c.connection_tracking = Some(ConnectionTracking {
                tcp_established_timeout: timeout,
                ..Default::default()
            });
        });
        assert_eq!(tracking, "1619669030802245540");
        let nested = changed(|c| {
            c.cpu_options = serde_json::from_value(json!({"nestedVirtualization": "enabled"})).ok();
        });
        assert_eq!(nested, "6157846767212910604");
    }

    #[test]
    fn what_the_selectors_find_and_the_prefixes_are_no_part_of_the_hash() {
        let base = changed(|_| ());
        assert_eq!(changed(|c| c.ip_prefix_count = Some(3)), base);
        assert_eq!(
            changed(|c| c.subnet_selector_terms = vec![Default::default()]),
            base
        );
        assert_eq!(changed(|c| c.block_device_mappings.reverse()), base);
        assert_eq!(changed(|c| c.ami_family = Some(AmiFamily::Custom)), base);
    }

    #[test]
    fn everything_else_of_the_class_is_part_of_the_hash() {
        let interface =
            json!([{"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}]);
        let mut seen = vec![
            changed(|_| ()),
            changed(|c| c.ami_family = Some(AmiFamily::AL2023)),
            changed(|c| c.detailed_monitoring = None),
            changed(|c| c.associate_public_ip_address = Some(true)),
            changed(|c| c.metadata_options = None),
            changed(|c| c.tags.clear()),
            changed(|c| c.block_device_mappings[1].root_volume = true),
            changed(|c| c.placement_group_selector = Some(Default::default())),
            changed(|c| c.network_interfaces = serde_json::from_value(interface).unwrap()),
            changed(|c| c.kubelet = serde_json::from_value(json!({"maxPods": 7})).ok()),
            node_class_hash(&class(), ""),
        ];
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn an_alias_counts_as_the_family_it_names() {
        let alias = changed(|c| {
            c.ami_selector_terms =
                serde_json::from_value(json!([{"alias": "al2023@latest"}])).unwrap();
        });
        assert_eq!(alias, changed(|c| c.ami_family = Some(AmiFamily::AL2023)));
    }

    #[test]
    fn sizes_are_hashed_as_kubernetes_writes_them() {
        for (size, canonical) in [
            ("2G", "2G"),
            ("1000G", "1T"),
            ("1024Gi", "1Ti"),
            ("1000Gi", "1000Gi"),
            ("1024G", "1024G"),
            ("58Ti", "58Ti"),
            ("3072Gi", "3Ti"),
            ("64T", "64T"),
            ("Ti", "Ti"),
        ] {
            assert_eq!(canonical_size(size), canonical);
        }
        assert_eq!(volume_size("1024Gi"), volume_size("1Ti"));
    }

    #[test]
    fn kubelet_is_hashed_with_sorted_keys_at_every_level() {
        let settings = |value| serde_json::from_value::<Kubelet>(value).unwrap();
        let nested = settings(json!({"z": 1, "a": {"y": [true, null, "<&>"], "b": "x"}}));
        let text = r#"{"a":{"b":"x","y":[true,null,"\u003c\u0026\u003e"]},"z":1}"#;
        assert_eq!(kubelet(Some(&nested)), text);
        assert_eq!(kubelet(None), "null");
        assert_eq!(kubelet(Some(&settings(json!({})))), "null");
    }
}
