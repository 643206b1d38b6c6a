//! CreateTags and DeleteTags.

use super::super::error::ApiError;
use super::super::query::Params;
use super::super::tags::{self, Tags};
use super::super::world::World;
use super::Call;

/// Resources of one call.
const RESOURCES_MAX: usize = 1_000;

pub(super) fn create(call: &Call<'_>) -> Result<String, ApiError> {
    let tags = tags::parse(&call.params.list("Tag"))?;
    if tags.is_empty() {
        return Err(ApiError::missing("Tag"));
    }
    change(call, |known| {
        known.extend(tags.clone());
        tags::check_count(known)
    })
}

pub(super) fn delete(call: &Call<'_>) -> Result<String, ApiError> {
    let tags: Vec<&Params> = call.params.list("Tag");
    change(call, |known| {
        for tag in &tags {
            let key = tag.required("Key")?;
            // With a value, only a tag with that value goes.
            let value = tag.text("Value");
            if value.is_none() || known.get(key).map(String::as_str) == value {
                known.remove(key);
            }
        }
        Ok(())
    })
}

/// Changes the tags of all resources of a request, or of none.
fn change(
    call: &Call<'_>,
    change: impl Fn(&mut Tags) -> Result<(), ApiError>,
) -> Result<String, ApiError> {
    let ids = call.params.texts("ResourceId");
    if ids.is_empty() {
        return Err(ApiError::missing("ResourceId"));
    }
    if ids.len() > RESOURCES_MAX {
        return Err(ApiError::value(format!(
            "At most {RESOURCES_MAX} resources at a time"
        )));
    }
    let mut world = call.world();
    let mut changed = Vec::with_capacity(ids.len());
    for id in ids {
        let mut tags = tags_of(&world, id)?;
        change(&mut tags)?;
        changed.push((id, tags));
    }
    call.rehearse()?;
    for (id, tags) in changed {
        put(&mut world, id, tags);
    }
    Ok(call.reply(|xml| xml.value("return", true)))
}

/// A copy of a resource's tags.
fn tags_of(world: &World, id: &str) -> Result<Tags, ApiError> {
    let kind = id.split('-').next().unwrap_or_default();
    let found = match kind {
        "i" => {
            let instance = world.instances.get(id);
            instance
                .filter(|i| i.visible_ms <= world.now_ms)
                .map(|i| i.tags.clone())
        }
        "lt" => world
            .templates
            .by_id(id)
            .map(|template| template.tags.clone()),
        "subnet" => world
            .network
            .subnets
            .get(id)
            .map(|subnet| subnet.tags.clone()),
        "sg" => world.network.groups.get(id).map(|group| group.tags.clone()),
        "ami" => world.images.by_id.get(id).map(|image| image.tags.clone()),
        // Volumes and interfaces have ids but no life of their own here: their tags are
        // accepted and dropped.
        "vol" | "eni" => Some(Tags::new()),
        _ => {
            return Err(ApiError::new(
                "InvalidID",
                format!("The ID '{id}' is not valid"),
            ));
        }
    };
    found.ok_or_else(|| {
        let code = match kind {
            "i" => "InvalidInstanceID.NotFound",
            "lt" => "InvalidLaunchTemplateId.NotFound",
            "subnet" => "InvalidSubnetID.NotFound",
            "sg" => "InvalidGroup.NotFound",
            _ => "InvalidAMIID.NotFound",
        };
        ApiError::new(code, format!("The ID '{id}' does not exist"))
    })
}

fn put(world: &mut World, id: &str, tags: Tags) {
    match id.split('-').next().unwrap_or_default() {
        "i" => {
            world.instances.update(id, |instance| instance.tags = tags);
        }
        "lt" => {
            if let Some(known) = world.templates.tags_mut(id) {
                *known = tags;
            }
        }
        "subnet" => {
            if let Some(subnet) = world.network.subnets.get_mut(id) {
                subnet.tags = tags;
            }
        }
        "sg" => {
            if let Some(group) = world.network.groups.get_mut(id) {
                group.tags = tags;
            }
        }
        "ami" => {
            if let Some(image) = world.images.by_id.get_mut(id) {
                std::sync::Arc::make_mut(image).tags = tags;
            }
        }
        _ => {}
    }
}
