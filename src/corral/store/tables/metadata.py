"""Every table as SQLAlchemy metadata: what the cold statements are built from.

Nothing here creates anything: `migrations/` does, and a test holds the two together.
"""

from __future__ import annotations

from sqlalchemy import (
    DateTime,
    MetaData,
    Text,
)
from sqlalchemy.dialects.postgresql import ARRAY

HEAD = "0024"
"""The newest migration; a database that already has it needs no Alembic at all."""


metadata = MetaData()
Time = DateTime(timezone=True)
Texts = ARRAY(Text)
