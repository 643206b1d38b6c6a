//! The timeline as a table and as a plot of what had happened by when.

use std::{fmt::Write as _, time::Duration};

use super::timeline::{Step, Timeline};

/// Columns of the plot.
const WIDTH: usize = 60;
/// Eighths of a cell; the first stands for nothing.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// First, median and last time of each step in milliseconds.
pub(super) fn table(timeline: &Timeline) -> String {
    let mut text = format!(
        "{:<26} {:>6} {:>9} {:>9} {:>9}   ms after the first pod\n",
        "", "count", "first", "median", "last"
    );
    for step in Step::ALL {
        let times = timeline.times(step);
        let at = |index: usize| {
            let time = times.get(index);
            time.map_or_else(|| "-".to_owned(), |time| time.as_millis().to_string())
        };
        let last = times.len().saturating_sub(1);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<26} {:>6} {:>9} {:>9} {:>9}",
            step.title(),
            times.len(),
            at(0),
            at(last / 2),
            at(last)
        );
    }
    text
}

/// One line per step: the share that had happened by each moment.
pub(super) fn plot(timeline: &Timeline) -> String {
    let ends = Step::ALL.map(|step| timeline.times(step).last().copied().unwrap_or_default());
    let end = ends.into_iter().max().unwrap_or_default();
    let mut text = String::new();
    for step in Step::ALL {
        let bar: String = shares(&timeline.times(step), end).into_iter().collect();
        let _ = writeln!(text, "{:<26} {bar}", step.title());
    }
    let right = format!("{:.1} s", end.as_secs_f64());
    let _ = writeln!(text, "{:<26} 0{right:>width$}", "", width = WIDTH - 1);
    text
}

fn shares(times: &[Duration], end: Duration) -> [char; WIDTH] {
    let mut bar = [' '; WIDTH];
    for (column, cell) in bar.iter_mut().enumerate() {
        let until = end.as_nanos() * (column as u128 + 1) / WIDTH as u128;
        let done = times.partition_point(|time| time.as_nanos() <= until);
        // What has begun shows, and only what is complete is full.
        *cell = match (done, times.len()) {
            (0, _) => LEVELS[0],
            (done, all) if done == all => LEVELS[8],
            (done, all) => LEVELS[(done * 8 / all).clamp(1, 7)],
        };
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_shows_beginning_and_completion() {
        let seconds: Vec<Duration> = [10, 20, 30].map(Duration::from_secs).to_vec();
        let bar = shares(&seconds, Duration::from_secs(60));
        assert_eq!((bar[8], bar[9]), (' ', '▂'));
        assert_eq!((bar[28], bar[29], bar[59]), ('▅', '█', '█'));
        assert_eq!(shares(&[], Duration::from_secs(60)), [' '; WIDTH]);
    }
}
