//! What every process measures about itself, read from the operating system when somebody asks.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::{MetricsError, Registry};
use crate::platform::clock;

/// Ticks a second in /proc; fixed by the kernel's interface to programs, whatever it was built with.
const TICKS: u64 = 100;

crate::metrics! {
    /// What every process measures about itself.
    pub struct ProcessMetrics {
        /// The version that runs, as the label of a constant 1.
        build: GaugeVec = "relevo_build_info" ["component", "version"],
        /// Start of the process, in seconds since 1970.
        start_time: FloatGauge = "process_start_time_seconds",
        /// Processor time used, in seconds.
        cpu: FloatCounter = "process_cpu_seconds_total",
        /// Memory that is resident, in bytes.
        resident: Gauge = "process_resident_memory_bytes",
        /// File descriptors that are open.
        open_fds: Gauge = "process_open_fds",
        /// File descriptors that may be open.
        max_fds: Gauge = "process_max_fds",
    }
}

impl ProcessMetrics {
    /// Registers them for `component`: `gateway`, `worker` or `dev`.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn of(component: &str, registry: &Registry) -> Result<Self, MetricsError> {
        let metrics = Self::register(registry)?;
        metrics
            .build
            .with_label_values(&[component, env!("CARGO_PKG_VERSION")])
            .set(1);
        if let Some(age) = fs::read_to_string("/proc/self/stat")
            .ok()
            .as_deref()
            .and_then(started_at)
            .map(age_since)
        {
            let now = Duration::from_millis(clock::now_ms());
            metrics.start_time.set(now.saturating_sub(age).as_secs_f64());
        }
        metrics.refresh();
        Ok(metrics)
    }

    /// Reads them anew. What cannot be read keeps its last value.
    pub fn refresh(&self) {
        let used = clock::process_cpu_time().as_secs_f64();
        self.cpu.inc_by((used - self.cpu.get()).max(0.0));
        if let Some(bytes) = fs::read_to_string("/proc/self/status")
            .ok()
            .as_deref()
            .and_then(resident_bytes)
        {
            self.resident.set(bytes);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them is the folder being read.
            self.open_fds
                .set(i64::try_from(open.count()).unwrap_or(i64::MAX).saturating_sub(1));
        }
        let most = getrlimit(Resource::Nofile)
            .current
            .and_then(|most| i64::try_from(most).ok());
        self.max_fds.set(most.unwrap_or(i64::MAX));
    }
}

/// When the process started, since the machine did: field 22 of /proc/self/stat. The second field, the program's name
/// in parentheses, may hold spaces and parentheses itself.
fn started_at(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(Duration::from_millis(ticks * 1000 / TICKS))
}

fn age_since(start: Duration) -> Duration {
    clock::boottime().saturating_sub(start)
}

fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;

    #[test]
    fn a_process_sees_itself() {
        let registry = Registry::new();
        let metrics = ProcessMetrics::of("gateway", &registry).unwrap();
        assert!(metrics.resident.get() > 1 << 20);
        assert!(metrics.open_fds.get() >= 3);
        assert!(metrics.max_fds.get() >= metrics.open_fds.get());
        let now = Duration::from_millis(clock::now_ms()).as_secs_f64();
        assert!(metrics.start_time.get() <= now && metrics.start_time.get() > now - 24.0 * 3600.0);
        let version = env!("CARGO_PKG_VERSION");
        let build = format!("relevo_build_info{{component=\"gateway\",version=\"{version}\"}} 1");
        assert!(encode(&[registry]).unwrap().contains(&build));
    }

    #[test]
    fn processor_time_only_grows() {
        let metrics = ProcessMetrics::of("gateway", &Registry::new()).unwrap();
        let before = metrics.cpu.get();
        metrics.refresh();
        assert!(metrics.cpu.get() >= before);
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_start_time() {
        let fields: Vec<String> = (3..=30).map(|number| number.to_string()).collect();
        let stat = format!("7 (a) b) {}", fields.join(" "));
        assert_eq!(started_at(&stat), Some(Duration::from_millis(220)));
        assert_eq!(started_at("7"), None);
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }
}
