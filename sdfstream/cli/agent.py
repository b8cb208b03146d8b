import argparse, asyncio
from pathlib import Path

HELP = "x"
EXAMPLE = "x"


def add_arguments(p):
    p.add_argument("--config", type=Path)
    p.add_argument("--bus")


def run(args):
    from sdfstream import settings
    from sdfstream.cli import loop
    from sdfstream.bus.link_io import LinkPublisher
    from sdfstream.probes.agent_io import run_agent
    from sdfstream.probes.ports_io import PortReader

    async def main():
        stop = asyncio.Event()
        loop.stop_on_signals(stop.set)
        async with LinkPublisher(args.bus[5:]) as pub:
            c = await run_agent(settings.load_agent(args.config), pub, PortReader, stop)
            print(c)

    loop.run(main())
    return 0
