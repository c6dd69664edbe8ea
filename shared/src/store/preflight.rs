//! Whether a Redis can keep what is promised: every node that holds data is looked at.

use std::collections::HashMap;

use futures_util::future::join_all;

use super::connection::{Node, command, info_field};
use super::{Retry, Store, StoreError};

/// What a look at the servers found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight {
    /// Identity of each running server; another one means a restart or a failover, after which the janitor looks anew.
    pub run_ids: Vec<String>,
    /// What works but should be known.
    pub warnings: Vec<String>,
}

impl Preflight {
    /// Tells the log what should be known.
    pub(crate) fn log(&self) {
        for warning in &self.warnings {
            tracing::warn!(warning, "redis");
        }
    }
}

/// What one node says of itself.
struct Look {
    run_id: String,
    warnings: Vec<&'static str>,
}

impl Store {
    /// Checks that this Redis can keep what is promised. Nodes of a cluster that are away are named in a warning, unless all are.
    ///
    /// # Errors
    /// [`StoreError::Refused`] names the rule that it breaks.
    pub async fn preflight(&self) -> Result<Preflight, StoreError> {
        let nodes = self.link().nodes();
        let clustered = self.is_clustered();
        let looks = join_all(nodes.iter().map(|node| look(node, clustered))).await;
        let mut found = Preflight {
            run_ids: Vec::new(),
            warnings: Vec::new(),
        };
        // A cluster is told which node is meant.
        let of = |node: &Node, text: &str| {
            if clustered {
                format!("{}: {text}", node.name())
            } else {
                text.to_owned()
            }
        };
        let mut away = None;
        for (node, look) in nodes.iter().zip(looks) {
            match look {
                Ok(look) => {
                    found.run_ids.push(look.run_id);
                    found
                        .warnings
                        .extend(look.warnings.into_iter().map(|text| of(node, text)));
                }
                Err(StoreError::Refused { rule }) => return Err(StoreError::Refused { rule: of(node, &rule) }),
                Err(error) if error.retry() == Retry::Later => {
                    let text = format!("it is away: its partitions are not served: {error}");
                    found.warnings.push(of(node, &text));
                    away.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        match away {
            Some(error) if found.run_ids.is_empty() => return Err(error),
            _ => {}
        }
        if self.link().cluster().is_some_and(|cluster| !cluster.map().is_whole()) {
            found
                .warnings
                .push("not every slot of the cluster has a node".to_owned());
        }
        Ok(found)
    }

    /// How full Redis is: used memory over `maxmemory`, of the fullest node that answers; `None` without a limit.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be asked.
    pub async fn memory_share(&self) -> Result<Option<f64>, StoreError> {
        let nodes = self.link().nodes();
        let infos = join_all(nodes.iter().map(|node| node.info("memory"))).await;
        let (mut fullest, mut answered, mut failure) = (None::<f64>, false, None);
        for info in infos {
            match info {
                Ok(info) => {
                    answered = true;
                    fullest = share(&info).into_iter().chain(fullest).reduce(f64::max);
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if !answered => Err(error),
            _ => Ok(fullest),
        }
    }
}

fn share(info: &str) -> Option<f64> {
    let field = |name| info_field(info, name).and_then(|v| v.parse::<f64>().ok());
    match (field("used_memory"), field("maxmemory")) {
        (Some(used), Some(most)) if most > 0.0 => Some(used / most),
        _ => None,
    }
}

async fn look(node: &Node, clustered: bool) -> Result<Look, StoreError> {
    let info = node.info("everything").await?;
    let field = |name: &str| info_field(&info, name);
    let version = field("redis_version").unwrap_or_default();
    let major: u32 = version.split('.').next().and_then(|v| v.parse().ok()).unwrap_or(0);
    let refuse = |rule: String| Err(StoreError::Refused { rule });
    if major != 0 && major < 7 {
        return refuse(format!(
            "redis {version} is too old: 7.0 or later is needed (scripts declare their flags)"
        ));
    }
    let mut warnings = Vec::new();
    if field("role").is_some_and(|role| role != "master") {
        if !clustered {
            return refuse("this redis is a replica: connect to the primary".to_owned());
        }
        // A failover is on its way: the map follows.
        warnings.push("it is a replica by now");
    }
    match field("maxmemory_policy") {
        None => warnings.push("cannot see maxmemory_policy: it must be noeviction"),
        Some(policy) if policy != "noeviction" && field("maxmemory").is_some_and(|max| max != "0") => {
            return refuse(format!(
                "maxmemory-policy is {policy}: it must be noeviction, or accepted turns vanish"
            ));
        }
        Some(_) => {}
    }
    if field("aof_enabled").as_deref() == Some("0") {
        warnings.push("append-only file is off: a restart of redis loses turns that were accepted");
    } else if appendfsync(node).await.as_deref() == Some("no") {
        warnings.push("appendfsync is no: a crash of the machine loses the turns of the last half minute; everysec loses a second");
    }
    Ok(Look {
        run_id: field("run_id").unwrap_or_else(|| "unknown".to_owned()),
        warnings,
    })
}

/// When the append-only file reaches the disk; `None` for a user who may not ask.
async fn appendfsync(node: &Node) -> Option<String> {
    let mut ask = command("CONFIG");
    ask.arg("GET").arg("appendfsync");
    let answer = node.query(0, &ask).await.ok()?;
    let settings: HashMap<String, String> = redis::from_redis_value(answer).ok()?;
    settings.into_values().next()
}
