"""The first schema: history that is only added to, and leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

HISTORY = (
    "run",
    "run_end",
    "stage_record",
    "stage_end",
    "transition",
    "verdict",
    "finding",
    "part_sighting",
    "facts",
    "evidence",
    "admission",
    "decision",
    "remedy",
    "takeover",
)


def upgrade() -> None:
    """Make the tables, and the triggers that refuse to change what was written."""
    op.create_table(
        "run",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("started", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("holder", sa.JSON(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("resumes", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["resumes"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_run_started", "run", ["started"], unique=False)
    op.create_table(
        "decision",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_decision_node", "decision", ["node", "id"], unique=False)
    op.create_table(
        "evidence",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest", "node", "kind", "run", name="uq_evidence_once"),
    )
    op.create_index("ix_evidence_node", "evidence", ["node", "id"], unique=False)
    op.create_table(
        "facts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_facts_node", "facts", ["node", "stage", "id"], unique=False)
    op.create_table(
        "lease",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("holder", sa.JSON(), nullable=False),
        sa.Column("since", sa.Text(), nullable=False),
        sa.Column("heartbeat", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "part_sighting",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("serial", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("firmware", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_part_sighting_node", "part_sighting", ["node"], unique=False)
    op.create_index("ix_part_sighting_serial", "part_sighting", ["serial", "id"], unique=False)
    op.create_table(
        "remedy",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("part_serial", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("done_by", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_remedy_node", "remedy", ["node", "id"], unique=False)
    op.create_index("ix_remedy_part_serial", "remedy", ["part_serial"], unique=False)
    op.create_table(
        "run_end",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("ended", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("run"),
    )
    op.create_table(
        "stage_record",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("started", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_stage_record_node", "stage_record", ["node", "id"], unique=False)
    op.create_index("ix_stage_record_run", "stage_record", ["run", "node"], unique=False)
    op.create_table(
        "takeover",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("previous_run", sa.Text(), nullable=False),
        sa.Column("previous_holder", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["previous_run"],
            ["run.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "transition",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("next_step", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("node", "sequence", name="uq_transition_node_sequence"),
    )
    op.create_table(
        "verdict",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_verdict_node", "verdict", ["node", "id"], unique=False)
    op.create_index("ix_verdict_run", "verdict", ["run"], unique=False)
    op.create_table(
        "admission",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Integer(), nullable=False),
        sa.Column("serial", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.Column("parts", sa.JSON(), nullable=False),
        sa.Column("firmware", sa.JSON(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("expires", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("signer", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run"],
            ["run.id"],
        ),
        sa.ForeignKeyConstraint(
            ["verdict"],
            ["verdict.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_admission_node", "admission", ["node", "id"], unique=False)
    op.create_table(
        "finding",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("check_id", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("part_serial", sa.Text(), nullable=False),
        sa.Column("measured", sa.Text(), nullable=False),
        sa.Column("expected", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["verdict"],
            ["verdict.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_finding_part_serial", "finding", ["part_serial"], unique=False)
    op.create_index("ix_finding_verdict", "finding", ["verdict"], unique=False)
    op.create_table(
        "stage_end",
        sa.Column("record", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ended", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("next_step", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("changed", sa.Boolean(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["record"],
            ["stage_record.id"],
        ),
        sa.PrimaryKeyConstraint("record"),
    )
    _append_only()


def _append_only() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION metalyard_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'the ledger''s table % is append-only: % refused', TG_TABLE_NAME, TG_OP; END $$"
        )
        for table in HISTORY:
            op.execute(
                f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION metalyard_append_only()"
            )
            op.execute(
                f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
                "FOR EACH STATEMENT EXECUTE FUNCTION metalyard_append_only()"
            )
        return
    for table in HISTORY:
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} BEGIN "
                f"SELECT RAISE(ABORT, 'the ledger''s table {table} is append-only: {verb} refused'); END"
            )
