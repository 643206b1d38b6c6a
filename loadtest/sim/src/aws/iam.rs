//! IAM: instance profiles and roles. AWS Query requests, XML answers, version 2010-05-08.

use std::collections::{BTreeMap, BTreeSet};

use super::Sim;
use super::clock::{iso_seconds, millis};
use super::config::AwsSimConfig;
use super::error::ApiError;
use super::id::Ids;
use super::page::Page;
use super::query::Params;
use super::tags::{self, Tags};
use super::world::World;
use super::xml::Xml;

const NAMESPACE: &str = "https://iam.amazonaws.com/doc/2010-05-08/";

/// Profiles of an account (IAM quota).
const PROFILES_MAX: usize = 1_000;
/// Largest page, and the size of one without MaxItems.
const ITEMS_MAX: usize = 1_000;
const ITEMS_DEFAULT: usize = 100;

/// An instance profile.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) id: String,
    pub(crate) arn: String,
    name: String,
    path: String,
    /// IAM allows one.
    role: Option<String>,
    tags: Tags,
    created_ms: u64,
    /// From when on EC2 sees it; IAM itself sees it at once.
    visible_ms: u64,
}

/// A role.
#[derive(Debug, Clone)]
struct Role {
    id: String,
    created_ms: u64,
}

/// Profiles and roles.
#[derive(Debug)]
pub(crate) struct Iam {
    profiles: BTreeMap<String, Profile>,
    roles: BTreeMap<String, Role>,
}

impl Iam {
    pub(crate) fn new(config: &AwsSimConfig, now_ms: u64) -> Self {
        // A seed of its own: roles must not shift the ids of everything else.
        let mut ids = Ids::new(config.seed ^ 0x1a3);
        let roles = config.roles.iter().map(|name| {
            (
                name.clone(),
                Role {
                    id: ids.iam("AROA"),
                    created_ms: now_ms,
                },
            )
        });
        Self {
            profiles: BTreeMap::new(),
            roles: roles.collect(),
        }
    }

    /// The profile of a name as EC2 sees it.
    pub(crate) fn visible_profile(&self, name: &str, now_ms: u64) -> Option<&Profile> {
        self.profiles
            .get(name)
            .filter(|profile| profile.visible_ms <= now_ms)
    }

    /// Adds a role, if there is none of the name.
    pub(crate) fn add_role(&mut self, name: &str, id: String, now_ms: u64) {
        self.roles.entry(name.to_owned()).or_insert(Role {
            id,
            created_ms: now_ms,
        });
    }

    /// Names of all profiles, sorted.
    pub(crate) fn profile_names(&self) -> Vec<String> {
        self.profiles.keys().cloned().collect()
    }

    fn profile_mut(&mut self, name: &str) -> Result<&mut Profile, ApiError> {
        self.profiles.get_mut(name).ok_or_else(|| no_profile(name))
    }

    fn check_role(&self, name: &str) -> Result<(), ApiError> {
        if self.roles.contains_key(name) {
            return Ok(());
        }
        Err(no_such_entity(format!(
            "The role with name {name} cannot be found."
        )))
    }
}

fn no_such_entity(message: String) -> ApiError {
    ApiError::new("NoSuchEntity", message).with_status(404)
}

fn no_profile(name: &str) -> ApiError {
    no_such_entity(format!("Instance Profile {name} cannot be found."))
}

fn conflict(code: &'static str, message: String) -> ApiError {
    ApiError::new(code, message).with_status(409)
}

/// Answers a request.
///
/// # Errors
/// The error to be written in IAM's form.
pub(crate) fn answer(
    sim: &Sim,
    action: &str,
    params: &Params,
    request_id: &str,
) -> Result<String, ApiError> {
    let mut world = sim.world();
    let world = &mut *world;
    let reply = |content: &mut dyn FnMut(&mut Xml)| reply(action, request_id, content);
    match action {
        "GetInstanceProfile" => {
            let name = params.required("InstanceProfileName")?;
            let profile = world.iam.profile_mut(name)?.clone();
            Ok(reply(&mut |xml| {
                xml.element("InstanceProfile", |xml| write_profile(xml, world, &profile));
            }))
        }
        "CreateInstanceProfile" => {
            let profile = create(world, params)?;
            Ok(reply(&mut |xml| {
                xml.element("InstanceProfile", |xml| write_profile(xml, world, &profile));
            }))
        }
        "GetRole" => {
            let name = params.required("RoleName")?;
            world.iam.check_role(name)?;
            Ok(reply(&mut |xml| {
                xml.element("Role", |xml| write_role(xml, world, name));
            }))
        }
        "ListInstanceProfiles" => list(world, action, params, request_id),
        _ => {
            change(world, action, params)?;
            Ok(reply(&mut |_| {}))
        }
    }
}

/// The actions whose answer says nothing.
fn change(world: &mut World, action: &str, params: &Params) -> Result<(), ApiError> {
    let name = || params.required("InstanceProfileName");
    match action {
        "DeleteInstanceProfile" => {
            let name = name()?;
            if world.iam.profile_mut(name)?.role.is_some() {
                return Err(conflict(
                    "DeleteConflict",
                    "Cannot delete entity, must remove roles from instance profile first."
                        .to_owned(),
                ));
            }
            world.iam.profiles.remove(name);
        }
        "AddRoleToInstanceProfile" => {
            let role = params.required("RoleName")?;
            world.iam.profile_mut(name()?)?;
            world.iam.check_role(role)?;
            let profile = world.iam.profile_mut(name()?)?;
            if profile.role.is_some() {
                return Err(conflict(
                    "LimitExceeded",
                    "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1".to_owned(),
                ));
            }
            profile.role = Some(role.to_owned());
        }
        "RemoveRoleFromInstanceProfile" => {
            let role = params.required("RoleName")?;
            let profile = world.iam.profile_mut(name()?)?;
            if profile.role.as_deref() != Some(role) {
                return Err(no_such_entity(format!(
                    "The role with name {role} cannot be found."
                )));
            }
            profile.role = None;
        }
        "TagInstanceProfile" => {
            let tags = tags::parse(&params.list("Tags.member"))?;
            world.iam.profile_mut(name()?)?.tags.extend(tags);
        }
        "UntagInstanceProfile" => {
            let keys: BTreeSet<String> = params.strings("TagKeys.member").into_iter().collect();
            world
                .iam
                .profile_mut(name()?)?
                .tags
                .retain(|key, _| !keys.contains(key));
        }
        other => {
            return Err(ApiError::new(
                "InvalidAction",
                format!("Could not find operation {other} for version 2010-05-08"),
            ));
        }
    }
    Ok(())
}

fn create(world: &mut World, params: &Params) -> Result<Profile, ApiError> {
    let name = params.required("InstanceProfileName")?;
    let legal = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c);
    if name.len() > 128 || !name.chars().all(legal) {
        return Err(ApiError::new(
            "ValidationError",
            format!("The specified value for instanceProfileName is invalid: {name}"),
        ));
    }
    let path = params.text("Path").unwrap_or("/");
    if !path.starts_with('/') || !path.ends_with('/') || path.len() > 512 {
        return Err(ApiError::new(
            "ValidationError",
            "The specified value for path is invalid. It must begin and end with /",
        ));
    }
    let tags = tags::parse(&params.list("Tags.member"))?;
    if world.iam.profiles.contains_key(name) {
        return Err(conflict(
            "EntityAlreadyExists",
            format!("Instance Profile {name} already exists."),
        ));
    }
    if world.iam.profiles.len() >= PROFILES_MAX {
        return Err(conflict(
            "LimitExceeded",
            format!("Cannot exceed quota for InstanceProfilesPerAccount: {PROFILES_MAX}"),
        ));
    }
    let profile = Profile {
        id: world.ids.iam("AIPA"),
        arn: format!(
            "arn:aws:iam::{}:instance-profile{path}{name}",
            world.config.account
        ),
        name: name.to_owned(),
        path: path.to_owned(),
        role: None,
        tags,
        created_ms: world.now_ms,
        visible_ms: world.now_ms + millis(world.config.timing.read_lag),
    };
    world.iam.profiles.insert(name.to_owned(), profile.clone());
    Ok(profile)
}

fn list(
    world: &World,
    action: &str,
    params: &Params,
    request_id: &str,
) -> Result<String, ApiError> {
    let size = params.number::<usize>("MaxItems")?.unwrap_or(ITEMS_DEFAULT);
    if !(1..=ITEMS_MAX).contains(&size) {
        return Err(ApiError::new(
            "ValidationError",
            format!("Value '{size}' at 'maxItems' must be between 1 and {ITEMS_MAX}"),
        ));
    }
    let prefix = params.text("PathPrefix").unwrap_or("/");
    let page = Page::at("ListInstanceProfiles", size, params.text("Marker"))?;
    let found = world
        .iam
        .profiles
        .values()
        .filter(|profile| profile.path.starts_with(prefix));
    let (profiles, marker) = page.of_list(found);
    Ok(reply(action, request_id, &mut |xml| {
        xml.value("IsTruncated", marker.is_some());
        xml.optional("Marker", marker.as_deref());
        xml.element("InstanceProfiles", |xml| {
            for profile in &profiles {
                xml.element("member", |xml| write_profile(xml, world, profile));
            }
        });
    }))
}

fn write_profile(xml: &mut Xml, world: &World, profile: &Profile) {
    xml.text("Path", &profile.path);
    xml.text("InstanceProfileName", &profile.name);
    xml.text("InstanceProfileId", &profile.id);
    xml.text("Arn", &profile.arn);
    xml.text("CreateDate", &iso_seconds(profile.created_ms));
    xml.element("Roles", |xml| {
        if let Some(role) = &profile.role {
            xml.element("member", |xml| write_role(xml, world, role));
        }
    });
    if !profile.tags.is_empty() {
        xml.element("Tags", |xml| {
            for (key, value) in &profile.tags {
                xml.element("member", |xml| {
                    xml.text("Key", key);
                    xml.text("Value", value);
                });
            }
        });
    }
}

fn write_role(xml: &mut Xml, world: &World, name: &str) {
    let Some(role) = world.iam.roles.get(name) else {
        return;
    };
    xml.text("Path", "/");
    xml.text("RoleName", name);
    xml.text("RoleId", &role.id);
    xml.text(
        "Arn",
        &format!("arn:aws:iam::{}:role/{name}", world.config.account),
    );
    xml.text("CreateDate", &iso_seconds(role.created_ms));
    let policy = "%7B%22Version%22%3A%222012-10-17%22%7D";
    xml.text("AssumeRolePolicyDocument", policy);
}

fn reply(action: &str, request_id: &str, content: &mut dyn FnMut(&mut Xml)) -> String {
    query_reply(NAMESPACE, action, request_id, content)
}

/// An answer of the AWS Query protocol.
pub(crate) fn query_reply(
    namespace: &str,
    action: &str,
    request_id: &str,
    content: &mut dyn FnMut(&mut Xml),
) -> String {
    Xml::document(&format!("{action}Response"), namespace, |xml| {
        xml.element(&format!("{action}Result"), |xml| content(xml));
        xml.element("ResponseMetadata", |xml| xml.text("RequestId", request_id));
    })
}

/// An error of the AWS Query protocol.
pub(crate) fn error_document(error: &ApiError, request_id: &str) -> String {
    Xml::document("ErrorResponse", NAMESPACE, |xml| {
        xml.element("Error", |xml| {
            xml.text(
                "Type",
                if error.status < 500 {
                    "Sender"
                } else {
                    "Receiver"
                },
            );
            xml.text("Code", &error.code);
            xml.text("Message", &error.message);
        });
        xml.text("RequestId", request_id);
    })
}
