//! The effective configuration as TOML, for `--print-config`.

use std::fmt::Write as _;

use super::Settings;
use super::mask::mask_table;

impl Settings {
    /// Every key with its value. Secrets are said to be set but not shown, credentials in URLs and in agents' tables are
    /// masked. What is printed reads back as the same configuration, save for what is hidden.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for (section, values) in self.printed() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "[{}]", section.name);
            for (field, value) in section.fields.iter().zip(values) {
                let _ = match value {
                    Some(_) if field.secret => writeln!(text, "# {} is set and not shown", field.key),
                    Some(value) => writeln!(text, "{} = {value}", field.key),
                    None => writeln!(text, "# {} is not set", field.key),
                };
            }
            text.push('\n');
        }
        for (name, tables) in self.free_form() {
            text.push_str(&free_form(name, &mask_table(tables)));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

fn free_form(name: &str, tables: &toml::Table) -> String {
    if tables.is_empty() {
        return String::new();
    }
    let whole = toml::Table::from_iter([(name.to_owned(), toml::Value::Table(tables.clone()))]);
    // A table made of TOML values can always be written.
    toml::to_string_pretty(&whole).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::Loader;

    #[test]
    fn what_is_printed_reads_back_as_the_same_configuration() {
        let settings = Loader::new()
            .text(
                "f",
                "[agents.demo]\nkind = \"demo\"\nargs = [\"a\", \"b\"]\n[agents.demo.card]\nname = \"x\"",
            )
            .set("worker.pools", "a,b")
            .set("admin.listen", "[::1]:9")
            .set("lease.renew", "250ms")
            .set("limits.redis_memory", "1")
            .load()
            .unwrap();
        let again = Loader::new().text("printed", &settings.to_toml()).load().unwrap();
        assert_eq!(again, settings);
    }

    #[test]
    fn every_key_is_printed_and_no_secret_is() {
        let settings = Loader::new()
            .text("f", "[agents.a]\ntoken = \"hunter2\"")
            .set("redis.password", "hunter2")
            .load()
            .unwrap();
        let printed = settings.to_toml();
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(
            printed.contains("# password is set and not shown\n# password_file is not set\n"),
            "{printed}"
        );
        assert!(
            printed.contains("[drain]\ndelay = \"5s\"\ndeadline = \"10m\"\n"),
            "{printed}"
        );
    }
}
