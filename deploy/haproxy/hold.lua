-- Requests wait here while the map says that the service is held, and then go on to where the map leads.
-- `move.cfg` beside this file loads it. A request that has waited for too long is answered 503 by that file.
local services = Map.new(os.getenv("PROXY_MAP"), Map._str)
local LOOK, LONGEST = 20, tonumber(os.getenv("PROXY_HOLD_MS"))

core.register_action("hold", { "http-req" }, function(_)
    local waited = 0
    while waited < LONGEST and services:lookup("service") == "held" do
        core.msleep(LOOK)
        waited = waited + LOOK
    end
end)
