-- Copies of requests go to `ams migrate shadow --listen PORT`, which asks two services what clients asked for. No client
-- waits for a copy, and none fails by it: whether they are taken, and when, makes no difference to anybody.
-- PROXY_SHADOW is where that command listens. In the frontend, for one of ten reads:
--     http-request lua.mirror if METH_GET { rand(100) lt 10 }
local PLACE = "http://" .. (os.getenv("PROXY_SHADOW") or "127.0.0.1:8090")
local MOST, MILLISECONDS = 20, 2000
local HEADERS = { "x-api-key", "authorization" }
local under_way = 0

local function send(url, headers)
    local client = core.httpclient()
    pcall(client.get, client, { url = url, headers = headers, timeout = MILLISECONDS })
    under_way = under_way - 1
end

core.register_action("mirror", { "http-req" }, function(request)
    if under_way >= MOST then
        return
    end
    local url, headers = PLACE .. request.sf:pathq(), {}
    for _, name in ipairs(HEADERS) do
        local value = request.sf:req_hdr(name)
        if value and value ~= "" then
            headers[name] = { value }
        end
    end
    under_way = under_way + 1
    core.register_task(function() send(url, headers) end)
end)
