"""How `corral top` is laid out: lists one above the other, or side by side."""

from __future__ import annotations

WIDE_COLUMNS = 150
WIDE_ROWS = 36

CSS = """
#head { height: 2; }
#trouble { height: 1; color: $warning; text-overflow: ellipsis; text-wrap: nowrap; }
#trouble.lost { background: $error; color: $text; text-style: bold; }
#about { height: 1; text-overflow: ellipsis; text-wrap: nowrap; }
#filter { display: none; height: 1; border: none; padding: 0 1; }
#lists { height: 1fr; }
Pane { height: 1fr; }
.title { height: 1; background: $panel; color: $text-muted; }
.focused .title { background: $primary-darken-2; color: $text; }
DataTable { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0;
       background: $background; }
DataTable > .datatable--header { background: $background; color: $text-muted;
       text-style: none; }

.small #lists { layout: vertical; }
.small #gpus { height: auto; max-height: 8; }
.small #gpus DataTable { height: auto; max-height: 7; }
.small #tasks, .small #workers, .small #nodes { display: none; }
.small .front { display: block !important; }

.wide #lists { layout: grid; grid-size: 2 3; grid-columns: 1fr 1fr;
       grid-rows: 1fr 1fr 2fr; grid-gutter: 0 2; }
.wide #gpus { row-span: 2; }
.wide #tasks { column-span: 2; }
.wide.bare #lists { grid-size: 2 2; grid-rows: 1fr 2fr; }

Overlay { align: center middle; }
#box { width: 100%; max-width: 150; height: auto; max-height: 90%;
       background: $surface; border: round $accent; padding: 0 1; }
#box.tall { height: 90%; }
.short #box { width: 60; }
#box VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
#log { height: 1fr; background: $surface; scrollbar-size-vertical: 1; }
"""
