"""Define `scbroker admin config`."""

from typing import Final

from scbroker.cli.admin.command import Admin, command, group

config: Final = group("config", help="Show the settings of a broker.")


@command(of=config)
def show(run: Admin) -> None:
    """List every setting, with its value and where it comes from.

    The source is the default, the TOML file that SCBROKER_CONFIG names, a variable or an option. Secret keys
    are shown as "set", and URLs without their passwords.
    """
    from scbroker.server import commands

    listed = commands.explain_settings(data_dir=run.data_dir)
    columns = {"name": "SETTING", "value": "VALUE", "source": "SOURCE", "meaning": "MEANING"}
    run.out.rows((each._asdict() for each in listed), columns)
