//! The profile of the reference server: its card, its namespace, the types of its parts.

use std::collections::BTreeMap;

use super::{Extension, GoodEnd, Ingest, Profile, SEED, Thinking};
use crate::agents::SkillConfig;

/// Media types that it takes as text.
const TEXT: [&str; 6] = [
    "text/plain",
    "application/json",
    "text/markdown",
    "text/yaml",
    "application/yaml",
    "application/x-yaml",
];
/// Media types that it describes to the agent.
const MEDIA: [&str; 8] = [
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/gif",
    "audio/mpeg",
    "audio/wav",
    "audio/ogg",
    "application/octet-stream",
];

/// Where the reference server is developed; the protocol wants a provider to have an address.
const PROJECT: &str = "https://github.com/aliyun/iac-code";

/// Id, name, description, tags, example.
const SKILLS: [(&str, &str, &str, &[&str], &str); 4] = [
    (
        "iac_generation",
        "IaC Generation",
        "Generates Alibaba Cloud ROS and Terraform templates from natural language.",
        &["iac", "ros", "terraform", "alibaba-cloud"],
        "Create a VPC with two vSwitches.",
    ),
    (
        "iac_review",
        "IaC Review",
        "Inspects infrastructure templates and suggests corrections.",
        &["iac", "review", "validation"],
        "Review this ROS template.",
    ),
    (
        "aliyun_ros_operations",
        "Alibaba Cloud ROS Operations",
        "Helps with the workflows of Alibaba Cloud ROS stacks.",
        &["aliyun", "ros", "stack"],
        "Why did the update of my stack fail?",
    ),
    (
        "terraform_ros_conversion",
        "Terraform To ROS Conversion",
        "Helps to convert Terraform to ROS.",
        &["terraform", "ros", "conversion"],
        "Convert this Terraform module to ROS.",
    ),
];

pub(super) fn profile() -> Profile {
    let types = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut skills: Vec<SkillConfig> = SKILLS.iter().map(skill).collect();
    skills.push(SkillConfig {
        id: "iac_code_runtime_details".to_owned(),
        name: "iac-code Runtime Details".to_owned(),
        description: "What callers with a credential may know about the running server.".to_owned(),
        tags: types(&["iac-code", "runtime", "a2a"]),
        examples: types(&["List my current A2A tasks."]),
        input_modes: Vec::new(),
        output_modes: Vec::new(),
        extended: true,
    });
    let mut profile = Profile {
        name: SEED.to_owned(),
        title: Some("iac-code".to_owned()),
        description: Some("Infrastructure as code for Alibaba Cloud, with ROS and Terraform.".to_owned()),
        organization: Some(("iac-code".to_owned(), PROJECT.to_owned())),
        skills,
        input_modes: types(&TEXT).into_iter().chain(types(&MEDIA)).collect(),
        output_modes: types(&["text/plain"]),
        extensions: vec![Extension {
            uri: "urn:iac-code:a2a:artifact-metadata:v1".to_owned(),
            description: "Progress of tools, permissions, use of tokens and facts about artifacts under `iac_code`."
                .to_owned(),
            required: false,
            params: BTreeMap::new(),
        }],
        namespace: Some("iac_code".to_owned()),
        thinking: Vec::new(),
        good_end: GoodEnd::InputRequired,
        answer_artifact: false,
        ingest: Some(Ingest {
            text_types: types(&TEXT),
            media_types: types(&MEDIA),
        }),
    };
    profile.show(vec![Thinking::Tools]);
    profile
}

fn skill((id, name, description, tags, example): &(&str, &str, &str, &[&str], &str)) -> SkillConfig {
    SkillConfig {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        description: (*description).to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        examples: vec![(*example).to_owned()],
        input_modes: Vec::new(),
        output_modes: Vec::new(),
        extended: false,
    }
}
