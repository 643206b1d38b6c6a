//! The JSON services that keep no state of their own: SSM, Pricing, EKS; and STS.

use millwright_ec2_catalogue::{TypeFacts, facts};
use serde_json::{Map, Value, json};

use super::Sim;
use super::error::ApiError;
use super::iam::query_reply;
use super::id::hash;
use super::page::Page;
use super::world::World;

/// Text of a member of a JSON request.
pub(crate) fn text<'a>(input: &'a Value, name: &str) -> Option<&'a str> {
    input.get(name)?.as_str()
}

/// Text of a member that must be there.
pub(crate) fn required<'a>(input: &'a Value, name: &str) -> Result<&'a str, ApiError> {
    text(input, name).ok_or_else(|| {
        ApiError::new("ValidationException", format!("1 validation error detected: Value at '{name}' failed to satisfy constraint: Member must not be null"))
    })
}

/// SSM: GetParameter and GetParameters.
///
/// # Errors
/// `ParameterNotFound` and friends.
pub(crate) fn ssm(sim: &Sim, action: &str, input: &Value) -> Result<Value, ApiError> {
    let world = sim.world();
    match action {
        "GetParameter" => {
            let name = required(input, "Name")?;
            let found = parameter(&world, name).ok_or_else(|| {
                ApiError::new("ParameterNotFound", format!("Parameter {name} not found."))
            })?;
            Ok(json!({ "Parameter": found }))
        }
        "GetParameters" => {
            let names: Vec<&str> = input
                .get("Names")
                .and_then(Value::as_array)
                .map(|names| names.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default();
            if !(1..=10).contains(&names.len()) {
                return Err(ApiError::new(
                    "ValidationException",
                    "Member 'names' must have length between 1 and 10",
                ));
            }
            let found: Vec<Value> = names
                .iter()
                .filter_map(|name| parameter(&world, name))
                .collect();
            let missing: Vec<&str> = names
                .into_iter()
                .filter(|name| parameter(&world, name).is_none())
                .collect();
            Ok(json!({ "Parameters": found, "InvalidParameters": missing }))
        }
        other => Err(unknown_operation(other)),
    }
}

fn unknown_operation(action: &str) -> ApiError {
    ApiError::new(
        "UnknownOperationException",
        format!("The operation {action} is not known"),
    )
}

/// A parameter by name, or by `name:version` for the current version.
fn parameter(world: &World, wanted: &str) -> Option<Value> {
    let (name, version) = match wanted.rsplit_once(':') {
        Some((name, version)) if !wanted.starts_with("arn:") => (name, Some(version)),
        _ => (wanted, None),
    };
    let found = world.images.parameters.get(name)?;
    if version.is_some_and(|version| version != found.version.to_string()) {
        return None;
    }
    Some(json!({
        "Name": name,
        "Type": "String",
        "Value": found.value,
        "Version": found.version,
        "LastModifiedDate": found.modified_ms / 1_000,
        "ARN": format!("arn:aws:ssm:{}::parameter{name}", world.config.region),
        "DataType": "text",
    }))
}

/// EKS: DescribeCluster, the only path.
///
/// # Errors
/// `ResourceNotFoundException`.
pub(crate) fn eks(sim: &Sim, cluster: &str) -> Result<Value, ApiError> {
    let world = sim.world();
    let config = &world.config.cluster;
    if cluster != config.name {
        return Err(ApiError::new(
            "ResourceNotFoundException",
            format!("No cluster found for name: {cluster}."),
        )
        .with_status(404));
    }
    let account = &world.config.account;
    let subnets: Vec<&str> = world.network.subnets.keys().map(|id| &**id).collect();
    let groups: Vec<&str> = world.network.groups.keys().map(String::as_str).collect();
    Ok(json!({ "cluster": {
        "name": config.name,
        "arn": format!("arn:aws:eks:{}:{account}:cluster/{}", world.config.region, config.name),
        "createdAt": 1_767_225_600,
        "version": config.version,
        "endpoint": config.endpoint,
        "roleArn": format!("arn:aws:iam::{account}:role/{}-cluster", config.name),
        "resourcesVpcConfig": {
            "subnetIds": subnets,
            "securityGroupIds": groups,
            "clusterSecurityGroupId": groups.first(),
            "vpcId": &*world.network.vpc_id,
            "endpointPublicAccess": true,
            "endpointPrivateAccess": true,
            "publicAccessCidrs": ["0.0.0.0/0"],
        },
        "kubernetesNetworkConfig": { "serviceIpv4Cidr": config.service_cidr, "ipFamily": "ipv4" },
        "status": "ACTIVE",
        "certificateAuthority": { "data": config.certificate_authority },
        "platformVersion": "eks.1",
        "tags": {},
    }}))
}

/// STS: GetCallerIdentity.
///
/// # Errors
/// Any other action.
pub(crate) fn sts(sim: &Sim, action: &str, request_id: &str) -> Result<String, ApiError> {
    if action != "GetCallerIdentity" {
        return Err(ApiError::new(
            "InvalidAction",
            format!("Could not find operation {action}"),
        ));
    }
    let account = sim.world().config.account.clone();
    Ok(query_reply(
        "https://sts.amazonaws.com/doc/2011-06-15/",
        action,
        request_id,
        &mut |xml| {
            xml.text(
                "Arn",
                &format!("arn:aws:sts::{account}:assumed-role/controller/simulated"),
            );
            xml.text("UserId", "AROASIMULATED:simulated");
            xml.text("Account", &account);
        },
    ))
}

/// Pricing: GetProducts of AmazonEC2.
///
/// # Errors
/// Another service, a malformed filter, or a foreign token.
pub(crate) fn pricing(sim: &Sim, action: &str, input: &Value) -> Result<Value, ApiError> {
    if action != "GetProducts" {
        return Err(unknown_operation(action));
    }
    let invalid = |message: &str| ApiError::new("InvalidParameterException", message.to_owned());
    if required(input, "ServiceCode")? != "AmazonEC2" {
        return Err(invalid("The simulator has prices of AmazonEC2 only"));
    }
    let mut filters = Vec::new();
    for filter in input
        .get("Filters")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let (kind, field, value) = (
            text(filter, "Type"),
            text(filter, "Field"),
            text(filter, "Value"),
        );
        match (kind, field, value) {
            (Some("TERM_MATCH"), Some(field), Some(value)) => {
                filters.push((field.to_ascii_lowercase(), value));
            }
            _ => {
                return Err(invalid(
                    "Filters must have Type TERM_MATCH, Field and Value",
                ));
            }
        }
    }
    let size = match input.get("MaxResults") {
        None | Some(Value::Null) => 100,
        Some(size) => size
            .as_u64()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| (1..=100).contains(size))
            .ok_or_else(|| invalid("MaxResults must be between 1 and 100"))?,
    };
    let page = Page::at("GetProducts", size, text(input, "NextToken")).map_err(|_| {
        ApiError::new(
            "InvalidNextTokenException",
            "The pagination token is invalid.",
        )
    })?;
    let region = sim.world().config.region.clone();
    let found = facts().iter().filter(|facts| {
        filters
            .iter()
            .all(|(field, value)| attribute(facts, &region, field).as_deref() == Some(*value))
    });
    let (types, token) = page.of_list(found);
    let list: Vec<String> = types
        .iter()
        .map(|facts| product(facts, &region).to_string())
        .collect();
    let mut output = json!({ "FormatVersion": "aws_v1", "PriceList": list });
    if let (Some(output), Some(token)) = (output.as_object_mut(), token) {
        output.insert("NextToken".to_owned(), Value::String(token));
    }
    Ok(output)
}

/// Attributes of products that can be filtered by, besides the family.
const ATTRIBUTES: [&str; 11] = [
    "servicecode",
    "regionCode",
    "location",
    "locationType",
    "instanceType",
    "tenancy",
    "operatingSystem",
    "preInstalledSw",
    "capacitystatus",
    "marketoption",
    "vcpu",
];

fn attribute(facts: &TypeFacts, region: &str, field: &str) -> Option<String> {
    let text = match field {
        "servicecode" => "AmazonEC2",
        "regioncode" => region,
        "location" => "US East (N. Virginia)",
        "locationtype" => "AWS Region",
        "instancetype" => facts.name,
        "tenancy" if facts.bare_metal => "Dedicated",
        "tenancy" => "Shared",
        "productfamily" if facts.bare_metal => "Compute Instance (bare metal)",
        "productfamily" => "Compute Instance",
        "operatingsystem" => "Linux",
        "preinstalledsw" => "NA",
        "capacitystatus" => "Used",
        "marketoption" => "OnDemand",
        "vcpu" => return Some(facts.vcpu.to_string()),
        _ => return None,
    };
    Some(text.to_owned())
}

/// One entry of the price list.
fn product(facts: &TypeFacts, region: &str) -> Value {
    let sku = format!("{:016X}", hash(facts.name));
    let term = format!("{sku}.JRTCKXETXF");
    let dimension = format!("{term}.6YS6EN2CT7");
    let price = format!(
        "{}.{:09}0",
        facts.on_demand_price / 1_000_000_000,
        facts.on_demand_price % 1_000_000_000
    );
    let attributes: Map<String, Value> = ATTRIBUTES
        .into_iter()
        .filter_map(|name| {
            let value = attribute(facts, region, &name.to_ascii_lowercase())?;
            Some((name.to_owned(), Value::String(value)))
        })
        .collect();
    json!({
        "product": {
            "productFamily": attribute(facts, region, "productfamily"),
            "attributes": attributes,
            "sku": sku,
        },
        "serviceCode": "AmazonEC2",
        "terms": { "OnDemand": { &term: {
            "priceDimensions": { &dimension: {
                "unit": "Hrs",
                "endRange": "Inf",
                "beginRange": "0",
                "description": format!("${price} per On Demand Linux {} Instance Hour", facts.name),
                "appliesTo": [],
                "rateCode": &dimension,
                "pricePerUnit": { "USD": price },
            }},
            "sku": sku,
            "effectiveDate": "2026-07-01T00:00:00Z",
            "offerTermCode": "JRTCKXETXF",
            "termAttributes": {},
        }}},
        "version": "20260720000000",
        "publicationDate": "2026-07-20T00:00:00Z",
    })
}
