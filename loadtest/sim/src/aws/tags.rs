//! Tags of resources.

use std::collections::BTreeMap;

use super::error::ApiError;
use super::query::Params;
use super::xml::Xml;

/// Key to value, sorted by key.
pub type Tags = BTreeMap<String, String>;

/// EC2's bounds: tags per resource, characters of a key and of a value.
const TAGS_MAX: usize = 50;
const KEY_MAX: usize = 128;
const VALUE_MAX: usize = 256;

/// Reads a list of `Key`, `Value` structures.
///
/// # Errors
/// EC2's errors about tags: reserved prefix, too long, too many.
pub(crate) fn parse(list: &[&Params]) -> Result<Tags, ApiError> {
    let mut tags = Tags::new();
    for tag in list {
        let key = tag.required("Key")?;
        let value = tag.text("Value").unwrap_or_default();
        if key.to_ascii_lowercase().starts_with("aws:") {
            return Err(ApiError::value(format!(
                "Tag keys starting with 'aws:' are reserved for internal use: {key}"
            )));
        }
        if key.chars().count() > KEY_MAX || value.chars().count() > VALUE_MAX {
            return Err(ApiError::value(format!(
                "Tag '{key}' is longer than allowed"
            )));
        }
        tags.insert(key.to_owned(), value.to_owned());
    }
    check_count(&tags)?;
    Ok(tags)
}

/// # Errors
/// `TagLimitExceeded` when a resource would have more tags than EC2 allows.
pub(crate) fn check_count(tags: &Tags) -> Result<(), ApiError> {
    // Tags that AWS itself sets do not count.
    if tags.keys().filter(|key| !key.starts_with("aws:")).count() > TAGS_MAX {
        return Err(ApiError::new(
            "TagLimitExceeded",
            format!("The maximum number of Tags for a resource has been reached: {TAGS_MAX}"),
        ));
    }
    Ok(())
}

/// The tags of a request by resource type: `TagSpecification.N.{ResourceType, Tag}`.
///
/// # Errors
/// As [`parse`], or a specification without resource type.
pub(crate) fn specifications(params: &Params) -> Result<BTreeMap<String, Tags>, ApiError> {
    let mut by_type = BTreeMap::new();
    for specification in params.list("TagSpecification") {
        let resource = specification.required("ResourceType")?;
        let tags = parse(&specification.list("Tag"))?;
        if by_type.insert(resource.to_owned(), tags).is_some() {
            return Err(ApiError::value(format!(
                "Duplicate resource type '{resource}' in the tag specifications"
            )));
        }
    }
    Ok(by_type)
}

/// `tagSet` of an EC2 answer. Left out when there are none, as EC2 does for instances.
pub(crate) fn write(xml: &mut Xml, tags: &Tags) {
    if !tags.is_empty() {
        xml.list("tagSet", tags, |xml, (key, value)| {
            xml.text("key", key);
            xml.text("value", value);
        });
    }
}
