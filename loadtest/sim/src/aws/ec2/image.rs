//! DescribeImages.

use super::super::clock::iso;
use super::super::error::ApiError;
use super::super::filter::{Filterable, Filters};
use super::super::image::Image;
use super::super::page::Limits;
use super::super::tags::{self, Tags};
use super::super::xml::Xml;
use super::Call;

impl Filterable for Image {
    const NAMES: &'static [&'static str] = &[
        "image-id",
        "name",
        "architecture",
        "state",
        "owner-id",
        "owner-alias",
        "is-public",
        "image-type",
        "platform",
        "virtualization-type",
        "root-device-type",
        "root-device-name",
        "creation-date",
        "description",
        "hypervisor",
    ];

    fn tags(&self) -> Option<&Tags> {
        Some(&self.tags)
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        match name {
            "image-id" => test(&self.id),
            "name" | "description" => test(&self.name),
            "architecture" => test(self.architecture),
            "state" => test("available"),
            "owner-id" => test(&self.owner_id),
            "owner-alias" => self.owner_alias.is_some_and(test),
            "is-public" => test(if self.owner_alias.is_some() {
                "true"
            } else {
                "false"
            }),
            "image-type" => test("machine"),
            "platform" => self.windows && test("windows"),
            "virtualization-type" => test("hvm"),
            "root-device-type" => test("ebs"),
            "root-device-name" => test(self.root_device()),
            "creation-date" => test(&self.creation_date()),
            "hypervisor" => test("xen"),
            _ => false,
        }
    }
}

pub(super) fn describe(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<Image>(call.params, true)?;
    let page = call.page(
        "DescribeImages",
        Limits {
            min: 1,
            max: 1_000,
            default: 1_000,
        },
    )?;
    let include_deprecated = call.params.flag("IncludeDeprecated")?.unwrap_or(false);
    let ids = call.params.texts("ImageId");
    let owners = call.params.texts("Owner");
    let world = call.world();
    for id in &ids {
        check_id(id)?;
        if !world.images.by_id.contains_key(*id) {
            return Err(not_found(id));
        }
    }
    call.rehearse()?;
    let account = &world.config.account;
    let owned = |image: &Image| {
        owners.is_empty()
            || owners.iter().any(|owner| {
                *owner == image.owner_id
                    || Some(*owner) == image.owner_alias
                    || *owner == "self" && image.owner_id == *account
            })
    };
    let now_ms = world.now_ms;
    let found = world.images.by_id.values().filter(|image| {
        (ids.is_empty() || ids.contains(&image.id.as_str()))
            && owned(image)
            // Named by id, a deprecated image is always shown.
            && (include_deprecated
                || !ids.is_empty()
                || image.deprecated_ms.is_none_or(|at| at > now_ms))
            && filters.accept(&***image)
    });
    let (images, token) = page.of_list(found);
    Ok(call.reply(|xml| {
        xml.list("imagesSet", images, |xml, image| write(xml, image));
        xml.optional("nextToken", token.as_deref());
    }))
}

fn write(xml: &mut Xml, image: &Image) {
    xml.text("imageId", &image.id);
    let owner = image.owner_alias.unwrap_or(&image.owner_id);
    xml.text("imageLocation", &format!("{owner}/{}", image.name));
    xml.text("imageState", "available");
    xml.text("imageOwnerId", &image.owner_id);
    xml.text("creationDate", &image.creation_date());
    xml.value("isPublic", image.owner_alias.is_some());
    xml.text("architecture", image.architecture);
    xml.text("imageType", "machine");
    if image.windows {
        xml.text("platform", "windows");
    }
    xml.optional("imageOwnerAlias", image.owner_alias);
    xml.text("name", &image.name);
    xml.text("description", &image.name);
    xml.text("rootDeviceType", "ebs");
    xml.text("rootDeviceName", image.root_device());
    xml.text("virtualizationType", "hvm");
    xml.text("hypervisor", "xen");
    xml.value("enaSupport", true);
    xml.text(
        "platformDetails",
        if image.windows {
            "Windows"
        } else {
            "Linux/UNIX"
        },
    );
    xml.optional("deprecationTime", image.deprecated_ms.map(iso).as_deref());
    tags::write(xml, &image.tags);
}

/// # Errors
/// `InvalidAMIID.Malformed` for something that cannot be an id.
pub(super) fn check_id(id: &str) -> Result<(), ApiError> {
    let digits = id.strip_prefix("ami-").unwrap_or_default();
    if matches!(digits.len(), 8 | 17) && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(());
    }
    Err(ApiError::new(
        "InvalidAMIID.Malformed",
        format!("Invalid id: \"{id}\" (expecting \"ami-...\")"),
    ))
}

pub(super) fn not_found(id: &str) -> ApiError {
    ApiError::new(
        "InvalidAMIID.NotFound",
        format!("The image id '[{id}]' does not exist"),
    )
}
