//! Formats numbers for people: 1,234,567; 12.3k; 2m05s; 1.5 GB.

pub use ember_data::numbers::{bytes, counted, grouped};

/// Three significant digits and a letter: 950, 12.3k, 4.56M, 1.20G.
pub fn short(number: f64) -> String {
    let (scaled, letter) = match number {
        ..999.5 => return format!("{number:.0}"),
        ..999_500.0 => (number / 1e3, "k"),
        ..999_500_000.0 => (number / 1e6, "M"),
        _ => (number / 1e9, "G"),
    };
    let decimals = match scaled {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{letter}")
}

/// Seconds as 4.2s, 2m05s, 3h07m or 2d04h.
pub fn duration(seconds: f64) -> String {
    if seconds < 9.95 {
        return format!("{:.1}s", seconds.max(0.0));
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole}s"),
        60..3_600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h{:02}m", whole / 3_600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3_600 % 24),
    }
}

/// Like [`bytes`], for a line that also shows `other`: if two different numbers would look the
/// same, writes every byte.
pub fn bytes_beside(number: u64, other: u64) -> String {
    let written = bytes(number);
    if number != other && written == bytes(other) { format!("{} B", grouped(number)) } else { written }
}

/// Parses a number of bytes as [`bytes`] writes it, the space and the decimal point optional: 8GB,
/// 1.5 GB, 500MB, 1000000.
///
/// # Errors
/// When the text is no such number; the message shows examples.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 5] = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)];
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1.0));
    let number: f64 = number.trim().parse().unwrap_or(f64::NAN);
    if (1.0..1e18).contains(&(number * unit)) {
        Ok((number * unit) as u64)
    } else {
        Err("write a number of bytes, such as 8GB, 500MB or 1000000".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_write_them() {
        assert_eq!([0, 7, 999, 1_000, 1_234_567].map(grouped), ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [950.4, 1_000.0, 12_345.0, 999_499.0, 4_560_000.0, 1.2e9].map(short),
            ["950", "1.00k", "12.3k", "999k", "4.56M", "1.20G"]
        );
        assert_eq!(
            [4.21, 59.6, 125.0, 11_220.0, 187_200.0].map(duration),
            ["4.2s", "1m00s", "2m05s", "3h07m", "2d04h"]
        );
        let beside = |a, b| [bytes_beside(a, b), bytes_beside(b, a)];
        assert_eq!(beside(1_104_000, 1_096_000), ["1,104,000 B", "1,096,000 B"]);
        assert_eq!(beside(1_160_000, 1_096_000), ["1.2 MB", "1.1 MB"]);
        assert_eq!(beside(1_104_000, 1_104_000), ["1.1 MB", "1.1 MB"]);
    }

    #[test]
    fn bytes_are_read_as_they_are_written() {
        for (text, number) in
            [("8GB", 8_000_000_000), ("1.5 GB", 1_500_000_000), ("512 B", 512), ("3.2 kB", 3_200), ("77", 77)]
        {
            assert_eq!(parse_bytes(text), Ok(number));
        }
        for text in ["", "GB", "-1GB", "8 gigabytes", "0", "nan", "1e30"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
