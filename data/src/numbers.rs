//! Formats whole numbers for people: 1,234,567; 1 file, 2 files; 1.5 GB.

use std::fmt::Display;

/// A whole number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect::<Vec<_>>().join(",")
}

/// A formatted number with its noun: "1 token", "2,345 tokens", "0.5 minutes", "3 passes".
pub fn counted(number: impl Display, noun: &str) -> String {
    let number = number.to_string();
    let hisses = ["s", "x", "ch"].iter().any(|end| noun.ends_with(end));
    let ending = if hisses { "es" } else { "s" };
    format!("{number} {noun}{}", if number == "1" { "" } else { ending })
}

/// Bytes as 512 B, 3.2 MB or 1.5 GB (powers of ten).
pub fn bytes(bytes: u64) -> String {
    let number = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..999_950 => format!("{:.1} kB", number / 1e3),
        999_950..999_950_000 => format!("{:.1} MB", number / 1e6),
        _ => format!("{:.1} GB", number / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_in_threes() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn bytes_have_the_unit_that_suits_them() {
        assert_eq!([512, 3_200_000, 1_500_000_000].map(bytes), ["512 B", "3.2 MB", "1.5 GB"]);
        assert_eq!(
            [999_949, 999_950, 999_949_999, 999_950_000].map(bytes),
            ["999.9 kB", "1.0 MB", "999.9 MB", "1.0 GB"]
        );
    }

    #[test]
    fn one_is_one() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "pass")), ["0 passes", "1 pass", "2 passes"]);
        assert_eq!([0.5, 1.0, 10.0].map(|m| counted(m, "minute")), ["0.5 minutes", "1 minute", "10 minutes"]);
        assert_eq!(counted(grouped(1234), "prefix"), "1,234 prefixes");
    }
}
