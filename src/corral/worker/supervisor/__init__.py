"""The process that stands for one worker: takes orders, runs them, reports."""
