//! Dates and times as Python's `datetime.now().strftime` writes them, for templates that state the
//! date.

use std::fmt::{Display, Write};
use std::iter::once;

use chrono::format::{Fixed, Item, Numeric, StrftimeItems};
use chrono::{DateTime, Local, TimeZone};

/// The current local time.
///
/// # Errors
/// Names a format with an unknown directive.
pub(super) fn now(format: &str) -> Result<String, String> {
    written(&Local::now(), format)
}

fn written<Zone: TimeZone>(moment: &DateTime<Zone>, format: &str) -> Result<String, String>
where
    Zone::Offset: Display,
{
    let mut text = String::new();
    // A trailing `%` without a directive stands for itself.
    let percents = format.len() - format.trim_end_matches('%').len();
    let (directives, trailing) = format.split_at(format.len() - percents % 2);
    for item in StrftimeItems::new(directives) {
        let result = match item {
            Item::Error => return Err(format!("strftime_now does not know a directive in {format}")),
            // Python's `datetime.now()` has no time zone, and microsecond resolution.
            Item::Fixed(Fixed::TimezoneName | Fixed::TimezoneOffset) => Ok(()),
            Item::Numeric(Numeric::Nanosecond, _) => write!(text, "{:06}", moment.timestamp_subsec_micros()),
            item => write!(text, "{}", moment.format_with_items(once(item))),
        };
        result.map_err(|_| format!("strftime_now cannot write {format}"))?;
    }
    Ok(text + trailing)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use chrono::FixedOffset;

    /// A time at this offset from UTC in hours.
    fn moment(seconds: i64, hours: i32) -> DateTime<FixedOffset> {
        FixedOffset::east_opt(hours * 3600).unwrap().timestamp_opt(seconds, 0).unwrap()
    }

    /// The output of Python's `strftime`.
    #[test]
    fn marks_are_those_of_python() {
        let all = "%a %A %b %B %C %d %e %g %G %H %I %j %k %l %m %M %p %S %u %U %V %w %W %y %Y%z%Z %% %-d %-m %-H %f %s";
        let cases = [
            (
                0,
                "Thu Thursday Jan January 19 01  1 70 1970 00 12 001  0 12 01 00 AM 00 4 00 01 4 00 70 1970 % 1 1 0 000000 0",
            ),
            (
                1_709_210_096,
                "Thu Thursday Feb February 20 29 29 24 2024 12 12 060 12 12 02 34 PM 56 4 08 09 4 09 24 2024 % 29 2 12 000000 \
                 1709210096",
            ),
            (
                1_735_603_199,
                "Mon Monday Dec December 20 30 30 25 2025 23 11 365 23 11 12 59 PM 59 1 52 01 1 53 24 2024 % 30 12 23 000000 \
                 1735603199",
            ),
            (
                1_798_761_599,
                "Thu Thursday Dec December 20 31 31 26 2026 23 11 365 23 11 12 59 PM 59 4 52 53 4 52 26 2026 % 31 12 23 000000 \
                 1798761599",
            ),
        ];
        for (seconds, expected) in cases {
            assert_eq!(written(&moment(seconds, 0), all).as_deref(), Ok(expected));
        }
        let joined = written(&moment(1_709_210_096, 0), "%c|%D|%F|%r|%R|%T|%x|%X|%h|%P|%n%t|%");
        let expected =
            "Thu Feb 29 12:34:56 2024|02/29/24|2024-02-29|12:34:56 PM|12:34|12:34:56|02/29/24|12:34:56|Feb|pm|\n\t|%";
        assert_eq!(joined.as_deref(), Ok(expected));
    }

    #[test]
    fn the_day_is_that_of_the_place() {
        let format = "%d %b %Y %H:%M%z%Z %s";
        assert_eq!(written(&moment(1_735_603_199, 2), format).as_deref(), Ok("31 Dec 2024 01:59 1735603199"));
        assert_eq!(written(&moment(0, -5), format).as_deref(), Ok("31 Dec 1969 19:00 0"));
    }

    #[test]
    fn a_mark_that_is_not_known_is_named() {
        assert_eq!(now("%d %Q").as_deref(), Err(&"strftime_now does not know a directive in %d %Q".to_owned()));
    }
}
