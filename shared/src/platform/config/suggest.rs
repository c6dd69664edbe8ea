//! "Did you mean": the nearest known name.

/// The candidate closest to `name`, if it is close enough to be a typing error.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters wrong is another word.
    let most = (name.len() / 3).clamp(1, 3);
    let distances = candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate));
    distances
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, letter) in left.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        let mut before = line + 1;
        next.push(before);
        for (other, pair) in right.iter().zip(row.windows(2)) {
            let [diagonal, above] = pair else { continue };
            before = (diagonal + usize::from(*other != letter))
                .min(above + 1)
                .min(before + 1);
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("ttl", "ttl"), 0);
        assert_eq!(distance("tll", "ttl"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        assert_eq!(nearest("tll", ["ttl", "renew"]), Some("ttl"));
        assert_eq!(
            nearest("max_durations", ["max_duration", "max_events"]),
            Some("max_duration")
        );
        assert_eq!(nearest("colour", ["ttl", "renew"]), None);
    }
}
