//! Tables for people.

/// Prints a Markdown table.
pub fn print(title: &str, head: &[&str], rows: &[Vec<String>]) {
    println!("## {title}\n");
    println!("| {} |", head.join(" | "));
    println!("|{}", " --- |".repeat(head.len()));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
    println!();
}

/// A figure with as many digits as it deserves.
pub fn figure(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
