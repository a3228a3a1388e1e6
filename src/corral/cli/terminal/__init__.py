"""What commands write: tables, bars, errors, logs."""
