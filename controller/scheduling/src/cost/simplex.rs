//! A dense simplex for linear programs whose origin is feasible.
//!
//! Maximises `gain . u` subject to `rows u <= limits`, `u >= 0`, with `limits >= 0`: resource
//! prices under which no offering is a bargain, or prices of pods under which no pattern is. The
//! multipliers of the rows come out as well: how often each offering or pattern is used.
//!
//! Only additions, multiplications and divisions of doubles, in a fixed order: IEEE 754 fixes
//! every bit of the result, on every machine. Plans are compared in integers afterwards.

/// Below this, relative to rows scaled to about 1, a number is taken for a rounding error.
const EPSILON: f64 = 1e-9;

/// What a linear program was solved to.
#[derive(Debug)]
pub(super) struct Optimum {
    /// By column.
    pub(super) prices: Vec<f64>,
    /// By row: how much the optimum would gain per unit of the row's limit.
    pub(super) multipliers: Vec<f64>,
    /// Pivots it took; each touches every cell of the program.
    pub(super) pivots: u64,
}

/// Solves the program; `columns` is the length of each row of `rows`. Gives the best point found
/// after `pivots_max` pivots, which is feasible though perhaps not optimal.
pub(super) fn maximise(
    gain: &[f64],
    rows: &[Vec<f64>],
    limits: &[f64],
    pivots_max: usize,
) -> Optimum {
    let mut tableau = Tableau::new(gain, rows, limits);
    let mut pivots = 0;
    for _ in 0..pivots_max {
        let Some(column) = tableau.entering() else {
            break;
        };
        // A gain without a row that bounds it cannot happen: every column has a positive entry.
        let Some(row) = tableau.leaving(column) else {
            break;
        };
        tableau.pivot(row, column);
        pivots += 1;
    }
    Optimum {
        pivots,
        ..tableau.optimum()
    }
}

/// The condensed tableau: basic variables label rows, the others label columns.
struct Tableau {
    /// Row by row; the last entry of a row is its right side, the last row the objective.
    cells: Vec<f64>,
    width: usize,
    height: usize,
    /// Variable of each row and column: columns first, then slacks.
    row_label: Vec<usize>,
    column_label: Vec<usize>,
}

impl Tableau {
    fn new(gain: &[f64], rows: &[Vec<f64>], limits: &[f64]) -> Self {
        let (columns, height) = (gain.len(), rows.len());
        let width = columns + 1;
        let mut cells = Vec::with_capacity(width * (height + 1));
        for (row, limit) in rows.iter().zip(limits) {
            cells.extend_from_slice(row);
            cells.push(*limit);
        }
        cells.extend(gain.iter().map(|gain| -gain));
        cells.push(0.0);
        Self {
            cells,
            width,
            height,
            row_label: (columns..columns + height).collect(),
            column_label: (0..columns).collect(),
        }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.cells[row * self.width..][..self.width]
    }

    /// The column with the largest gain; the first among equals.
    fn entering(&self) -> Option<usize> {
        let objective = &self.row(self.height)[..self.width - 1];
        let mut best: Option<(usize, f64)> = None;
        for (column, cost) in objective.iter().enumerate() {
            if *cost < -EPSILON && best.is_none_or(|(_, least)| *cost < least) {
                best = Some((column, *cost));
            }
        }
        best.map(|(column, _)| column)
    }

    /// The row that bounds the column first; ties go to the smallest label, which cannot cycle
    /// for long.
    fn leaving(&self, column: usize) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for row in 0..self.height {
            let cells = self.row(row);
            if cells[column] <= EPSILON {
                continue;
            }
            let ratio = cells[self.width - 1] / cells[column];
            let better = best.is_none_or(|(kept, least)| {
                ratio < least || (ratio <= least && self.row_label[row] < self.row_label[kept])
            });
            if better {
                best = Some((row, ratio));
            }
        }
        best.map(|(row, _)| row)
    }

    fn pivot(&mut self, row: usize, column: usize) {
        let inverse = 1.0 / self.row(row)[column];
        let at = row * self.width;
        for cell in &mut self.cells[at..at + self.width] {
            *cell *= inverse;
        }
        self.cells[at + column] = inverse;
        let pivot_row: Vec<f64> = self.row(row).to_vec();
        for other in (0..=self.height).filter(|other| *other != row) {
            let cells = &mut self.cells[other * self.width..][..self.width];
            let factor = cells[column];
            if factor.abs() <= f64::MIN_POSITIVE {
                continue;
            }
            for (cell, pivot) in cells.iter_mut().zip(&pivot_row) {
                *cell -= factor * pivot;
            }
            cells[column] = -factor * inverse;
        }
        std::mem::swap(&mut self.row_label[row], &mut self.column_label[column]);
    }

    fn optimum(&self) -> Optimum {
        let columns = self.width - 1;
        let mut optimum = Optimum {
            prices: vec![0.0; columns],
            multipliers: vec![0.0; self.height],
            pivots: 0,
        };
        for (row, label) in self.row_label.iter().enumerate() {
            if *label < columns {
                optimum.prices[*label] = self.row(row)[columns].max(0.0);
            }
        }
        let objective = self.row(self.height);
        for (column, label) in self.column_label.iter().enumerate() {
            if let Some(slack) = label.checked_sub(columns) {
                optimum.multipliers[slack] = objective[column].max(0.0);
            }
        }
        optimum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: &[f64], b: &[f64]) -> bool {
        a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6)
    }

    #[test]
    fn a_textbook_program_gives_prices_and_multipliers() {
        // max 3x + 5y, x <= 4, 2y <= 12, 3x + 2y <= 18: x = 2, y = 6, multipliers 0, 1.5, 1.
        let rows = [vec![1.0, 0.0], vec![0.0, 2.0], vec![3.0, 2.0]];
        let optimum = maximise(&[3.0, 5.0], &rows, &[4.0, 12.0, 18.0], 50);
        assert!(close(&optimum.prices, &[2.0, 6.0]), "{optimum:?}");
        assert!(close(&optimum.multipliers, &[0.0, 1.5, 1.0]), "{optimum:?}");
    }

    #[test]
    fn a_degenerate_program_ends() {
        let rows = [vec![1.0, 1.0], vec![1.0, 1.0], vec![1.0, 0.0]];
        let optimum = maximise(&[1.0, 1.0], &rows, &[0.0, 0.0, 0.0], 50);
        assert!(close(&optimum.prices, &[0.0, 0.0]), "{optimum:?}");
    }
}
