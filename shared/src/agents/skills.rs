//! The skills that tables list: how they are read, and whose they are.

use toml::Table;

use super::read::{Reader, media_types};
use super::{AgentConfig, SkillConfig};
use crate::platform::config::ConfigErrors;

const KEYS: [&str; 8] = [
    "id",
    "name",
    "description",
    "tags",
    "examples",
    "input_modes",
    "output_modes",
    "extended",
];

pub(super) fn skills(reader: &mut Reader<'_>) -> Vec<SkillConfig> {
    let mut skills: Vec<SkillConfig> = Vec::new();
    reader.each_table("skills", |reader| {
        reader.refuse_unknown(&KEYS);
        let id = reader.required_text("id");
        if skills.iter().any(|skill| skill.id == id) {
            reader.wrong("id", &id, "is used twice");
        }
        let skill = SkillConfig {
            name: reader.text("name").unwrap_or_else(|| id.clone()),
            description: reader.required_text("description"),
            tags: reader.texts("tags"),
            examples: reader.texts("examples"),
            input_modes: media_types("input_modes", reader).unwrap_or_default(),
            output_modes: media_types("output_modes", reader).unwrap_or_default(),
            extended: reader.flag("extended"),
            id,
        };
        skills.push(skill);
    });
    skills
}

/// A skill that an agent lists itself is how messages name it: no other may list it, or be called like it.
pub(super) fn refuse_shared(tables: &Table, all: &[AgentConfig], errors: &mut ConfigErrors) {
    let listed = |agent: &&AgentConfig| {
        tables
            .get(&agent.name)
            .is_some_and(|table| table.get("skills").is_some())
    };
    let mut owners: Vec<(&str, &str)> = all
        .iter()
        .map(|agent| (agent.name.as_str(), agent.name.as_str()))
        .collect();
    for agent in all.iter().filter(listed) {
        for skill in &agent.skills {
            match owners.iter().find(|(id, _)| *id == skill.id) {
                Some((_, owner)) if *owner != agent.name => {
                    let rule = format!("the skill `{}` is that of the agent `{owner}`, too", skill.id);
                    errors.refuse(format!("agents.{}.skills", agent.name), rule);
                }
                Some(_) => {}
                None => owners.push((&skill.id, &agent.name)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::read;

    #[test]
    fn a_skill_belongs_to_one_agent() {
        let (_, errors) = read(
            "[a]\nkind = \"demo\"\ndefault = true\n[[a.skills]]\nid = \"x\"\ndescription = \"X.\"\n\
             [b]\nkind = \"demo\"\n[[b.skills]]\nid = \"x\"\ndescription = \"X.\"\n[[b.skills]]\nid = \"a\"\ndescription = \"A.\"\n\
             [[b.skills]]\nid = \"b\"\ndescription = \"Itself.\"\n",
        );
        assert_eq!(
            errors,
            [
                "agents.b.skills: the skill `x` is that of the agent `a`, too",
                "agents.b.skills: the skill `a` is that of the agent `a`, too"
            ]
        );
    }

    #[test]
    fn skills_of_a_profile_are_the_default_agents_and_names_are_skills() {
        let (agents, errors) = read(
            "[a]\nkind = \"demo\"\nprofile = \"iac-code\"\n[b]\nkind = \"demo\"\nprofile = \"iac-code\"\ndefault = true\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        let of = |id: &str| agents.of_skill(id).map(|agent| agent.name.as_str());
        assert_eq!(
            (of("iac_review"), of("a"), of("b"), of("c")),
            (Some("b"), Some("a"), Some("b"), None)
        );
    }
}
