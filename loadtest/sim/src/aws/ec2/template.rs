//! Launch templates.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::super::clock::{iso_seconds, millis};
use super::super::config::LAUNCH_TEMPLATES_MAX;
use super::super::error::ApiError;
use super::super::filter::{Filterable, Filters};
use super::super::page::Limits;
use super::super::query::Params;
use super::super::spec::LaunchSpec;
use super::super::tags::{self, Tags};
use super::super::world::World;
use super::super::xml::Xml;
use super::Call;

/// A launch template. It has one version: nothing in scope makes more.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) spec: LaunchSpec,
    created_ms: u64,
    /// From when on reads and launches see it.
    visible_ms: u64,
    pub(crate) tags: Tags,
}

/// The only version's number.
pub(crate) const VERSION: u64 = 1;

/// All templates, in order of creation.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    by_ordinal: BTreeMap<u64, Arc<Template>>,
    by_name: HashMap<String, u64>,
    by_id: HashMap<String, u64>,
    next: u64,
}

impl Templates {
    fn insert(&mut self, template: Template) {
        self.next += 1;
        self.by_name.insert(template.name.clone(), self.next);
        self.by_id.insert(template.id.clone(), self.next);
        self.by_ordinal.insert(self.next, Arc::new(template));
    }

    fn remove(&mut self, template: &Template) {
        self.by_name.remove(&template.name);
        if let Some(ordinal) = self.by_id.remove(&template.id) {
            self.by_ordinal.remove(&ordinal);
        }
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<Template>> {
        self.by_ordinal.get(self.by_name.get(name)?)
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&Arc<Template>> {
        self.by_ordinal.get(self.by_id.get(id)?)
    }

    /// Names in order of creation.
    pub(crate) fn names(&self) -> Vec<String> {
        self.by_ordinal
            .values()
            .map(|template| template.name.clone())
            .collect()
    }

    /// The tags of a template, to be changed.
    pub(crate) fn tags_mut(&mut self, id: &str) -> Option<&mut Tags> {
        let ordinal = self.by_id.get(id)?;
        let template = self.by_ordinal.get_mut(ordinal)?;
        // Launches hold a template only while they run, under the same lock.
        Arc::get_mut(template).map(|template| &mut template.tags)
    }
}

/// Finds the template that a request names by id or name.
///
/// # Errors
/// EC2's two codes for "not found", or `MissingParameter`.
pub(super) fn find(world: &World, params: &Params) -> Result<Arc<Template>, ApiError> {
    let visible = |template: &&Arc<Template>| template.visible_ms <= world.now_ms;
    if let Some(id) = params.text("LaunchTemplateId") {
        return world
            .templates
            .by_id(id)
            .filter(visible)
            .cloned()
            .ok_or_else(|| id_not_found(id));
    }
    let Some(name) = params.text("LaunchTemplateName") else {
        return Err(ApiError::missing("LaunchTemplateId or LaunchTemplateName"));
    };
    world
        .templates
        .by_name(name)
        .filter(visible)
        .cloned()
        .ok_or_else(|| name_not_found(name))
}

fn id_not_found(id: &str) -> ApiError {
    ApiError::new(
        "InvalidLaunchTemplateId.NotFound",
        format!("The specified launch template, with template ID {id}, does not exist."),
    )
}

fn name_not_found(name: &str) -> ApiError {
    ApiError::new(
        "InvalidLaunchTemplateName.NotFoundException",
        format!("The specified launch template, with template name {name}, does not exist."),
    )
}

/// # Errors
/// A version that a template with one version does not have.
pub(super) fn check_version(params: &Params) -> Result<(), ApiError> {
    match params.text("Version") {
        None | Some("" | "$Latest" | "$Default" | "1") => Ok(()),
        Some(version) => Err(ApiError::new(
            "InvalidLaunchTemplateId.VersionNotFound",
            format!("Could not find launch template version {version}"),
        )),
    }
}

pub(super) fn create(call: &Call<'_>) -> Result<String, ApiError> {
    let params = call.params;
    let name = params.required("LaunchTemplateName")?;
    let legal = |c: char| c.is_ascii_alphanumeric() || "().-/_".contains(c);
    if !(3..=128).contains(&name.len()) || !name.chars().all(legal) {
        return Err(ApiError::new(
            "InvalidLaunchTemplateName.MalformedException",
            format!("The launch template name {name} is invalid"),
        ));
    }
    let Some(data) = params.get("LaunchTemplateData") else {
        return Err(ApiError::missing("LaunchTemplateData"));
    };
    let spec = LaunchSpec::parse(data)?;
    let tags = tags::specifications(params)?
        .remove("launch-template")
        .unwrap_or_default();
    call.once("CreateLaunchTemplate", |world| {
        if world.templates.by_name(name).is_some() {
            return Err(ApiError::new(
                "InvalidLaunchTemplateName.AlreadyExistsException",
                format!("Launch template name already in use: {name}"),
            ));
        }
        if world.templates.by_id.len() >= LAUNCH_TEMPLATES_MAX {
            return Err(ApiError::new(
                "MaxTemplateLimitExceeded",
                "Account has already reached max permitted templates",
            ));
        }
        call.rehearse()?;
        let template = Template {
            id: world.ids.ec2("lt"),
            name: name.to_owned(),
            spec,
            created_ms: world.now_ms,
            visible_ms: world.now_ms + millis(world.config.timing.read_lag),
            tags,
        };
        let account = world.config.account.clone();
        let answer = call.reply(|xml| {
            xml.element("launchTemplate", |xml| write(xml, &template, &account));
        });
        world.templates.insert(template);
        Ok(answer)
    })
}

pub(super) fn delete(call: &Call<'_>) -> Result<String, ApiError> {
    let mut world = call.world();
    let template = find(&world, call.params)?;
    call.rehearse()?;
    world.templates.remove(&template);
    let account = &world.config.account;
    Ok(call.reply(|xml| {
        xml.element("launchTemplate", |xml| write(xml, &template, account));
    }))
}

fn write(xml: &mut Xml, template: &Template, account: &str) {
    xml.text("launchTemplateId", &template.id);
    xml.text("launchTemplateName", &template.name);
    xml.text("createTime", &iso_seconds(template.created_ms));
    xml.text(
        "createdBy",
        &format!("arn:aws:sts::{account}:assumed-role/controller/simulated"),
    );
    xml.value("defaultVersionNumber", VERSION);
    xml.value("latestVersionNumber", VERSION);
    tags::write(xml, &template.tags);
}

impl Filterable for Template {
    const NAMES: &'static [&'static str] = &["create-time", "launch-template-name"];

    fn tags(&self) -> Option<&Tags> {
        Some(&self.tags)
    }

    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        match name {
            "create-time" => test(&iso_seconds(self.created_ms)),
            _ => test(&self.name),
        }
    }
}

pub(super) fn describe(call: &Call<'_>) -> Result<String, ApiError> {
    let filters = Filters::of::<Template>(call.params, true)?;
    let mut page = call.page(
        "DescribeLaunchTemplates",
        Limits {
            min: 1,
            max: 1_000,
            default: 200,
        },
    )?;
    page.limit = page.limit.min(200);
    let (ids, names) = (
        call.params.texts("LaunchTemplateId"),
        call.params.texts("LaunchTemplateName"),
    );
    let world = call.world();
    let visible = |template: &Arc<Template>| template.visible_ms <= world.now_ms;
    for id in &ids {
        world
            .templates
            .by_id(id)
            .filter(|t| visible(t))
            .ok_or_else(|| id_not_found(id))?;
    }
    for name in &names {
        world
            .templates
            .by_name(name)
            .filter(|t| visible(t))
            .ok_or_else(|| name_not_found(name))?;
    }
    call.rehearse()?;
    let found = world
        .templates
        .by_ordinal
        .range(page.start..)
        .filter(|(_, template)| visible(template))
        .filter(|(_, template)| ids.is_empty() || ids.contains(&template.id.as_str()))
        .filter(|(_, template)| names.is_empty() || names.contains(&template.name.as_str()))
        .filter(|(_, template)| filters.accept(&***template));
    let mut templates: Vec<_> = found.take(page.limit + 1).collect();
    let token = templates
        .get(page.limit)
        .map(|(ordinal, _)| page.token(**ordinal));
    templates.truncate(page.limit);
    Ok(call.reply(|xml| {
        xml.list("launchTemplates", templates, |xml, (_, template)| {
            write(xml, template, &world.config.account);
        });
        xml.optional("nextToken", token.as_deref());
    }))
}
