// Declares the settings of flow logs.
import { choice, flag, onOff, pointerText, seconds } from "./scalar-types.ts";
import { setting } from "./setting.ts";

const NO_COLLECTOR = { noEffect: "there is no flow log collector" } as const;

export const flowLogSettings = {
  FlowLogsGoldmaneServer: setting(
    "flowLogsGoldmaneServer",
    pointerText,
    "",
    "Address of Goldmane. Nothing is sent there, because there is no flow log collector. If set, rules still send their verdicts on new connections to NFLOG",
  ),
  FlowLogsLocalReporter: setting(
    "flowLogsLocalReporter",
    onOff,
    "Disabled",
    "Report flows to a socket on the host. Nothing is reported, because there is no flow log collector. If enabled, rules still send their verdicts on new connections to NFLOG",
  ),
  FlowLogsFlushInterval: setting("flowLogsFlushInterval", seconds, "300", "Interval of flow log exports", NO_COLLECTOR),
  FlowLogsCollectorDebugTrace: setting(
    "flowLogsCollectorDebugTrace",
    flag,
    "false",
    "Detailed log of the flow log collector",
    NO_COLLECTOR,
  ),
  FlowLogsPolicyEvaluationMode: setting(
    "flowLogsPolicyEvaluationMode",
    choice("None", "Continuous"),
    "Continuous",
    "Whether policies that are not yet enforced are evaluated again for connections that exist",
    NO_COLLECTOR,
  ),
};
