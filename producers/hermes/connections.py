"""All that one session of the plug-in holds open, made together and closed together. Does I/O through its parts."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from producers.hermes.courier import Courier
from producers.hermes.identity import Memory
from producers.hermes.ledger import Ledger
from producers.hermes.outbox import Outbox
from producers.hermes.pause import Pause
from producers.hermes.recalling import Recalling
from producers.hermes.senders import HttpSender, Sender, StreamSender
from producers.hermes.service import Service
from producers.hermes.settings import KEY_VARIABLE, HermesSettings
from producers.hermes.tools import Tools
from producers.hermes.turns import Writer


@dataclass(frozen=True)
class Connections:
    """The parts, each with one job."""

    writer: Writer
    ledger: Ledger
    service: Service
    sender: Sender
    courier: Courier
    recalling: Recalling
    tools: Tools

    @classmethod
    def open(cls, home: Path, settings: HermesSettings, memory: Memory, facts: dict[str, str]) -> Connections:
        """Connects to nothing yet; a thread sends what is left of earlier, another has the service load its models.

        Raises `SettingsError`.
        """
        common = settings.common()
        service = Service(lambda: settings.service_url(common.data_dir), os.environ.get(KEY_VARIABLE) or None)
        outbox = Outbox(home, settings.url or "local", common.spool_bytes)
        over_http = settings.transport == "http"
        sender: Sender = HttpSender(service, outbox) if over_http else StreamSender(common)
        asking, sending = Pause(f"recall before a turn in {home}"), Pause(f"sending turns of {home}")
        recalling = Recalling(
            service, memory, asking, k=settings.k, min_score=settings.min_score, redact=settings.redact
        )
        writer = Writer(memory, settings.redact, common.max_content_bytes, facts)
        tools = Tools(memory, writer, sender, recalling, service, outbox)
        courier = Courier(sender, sending)
        courier.start()
        threading.Thread(target=recalling.warm, name="scope-recall-warm", daemon=True).start()
        return cls(writer, Ledger(home), service, sender, courier, recalling, tools)

    def close(self, seconds: float) -> None:
        """Send what can be sent in `seconds`, and let go."""
        self.courier.stop(seconds)
        self.sender.close()
        self.service.close()
