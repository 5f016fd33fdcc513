-- A run of Lua for first-run.sh: a bit of everything, always the same.
local state = 2024
local function random(n) state = (state * 16807) % 2147483647; return state % n + 1 end

-- a queue of events, in order of time: tables, comparisons, metatables
local Event = {}
Event.__index = Event
Event.__lt = function(a, b) return a.time < b.time end
Event.__tostring = function(e) return string.format("%06d %-8s %5.2f", e.time, e.kind, e.weight) end
local kinds, queue = { "arrive", "serve", "leave", "wait" }, {}
for i = 1, 3000 do
  queue[i] = setmetatable({ time = random(900000), kind = kinds[random(#kinds)], weight = random(1000) / 7 }, Event)
end
table.sort(queue)
local total = 0.0
for i, event in ipairs(queue) do if event.kind ~= "wait" then total = total + event.weight * i end end
print(#queue, tostring(queue[1]), string.format("%.3f", total))

-- text: patterns, replacement, concatenation
local lines = {}
for i = 1, 1500 do lines[#lines + 1] = ("user%d=%x;size=%d"):format(random(50), random(1 << 30), random(5000)) end
local text, seen, sum = table.concat(lines, "\n"), {}, 0
for user, size in text:gmatch("(user%d+)=%x+;size=(%d+)") do
  seen[user] = (seen[user] or 0) + tonumber(size)
  sum = sum + #user
end
local names = {}
for name in pairs(seen) do names[#names + 1] = name end
table.sort(names)
print(#names, sum, seen[names[1]], (select(2, text:gsub("size", "SIZE"))), text:find("user49", 1, true) ~= nil)

-- coroutines and closures: primes through a chain of filters
local function generate(n) return coroutine.wrap(function() for i = 2, n do coroutine.yield(i) end end) end
local function filter(p, source)
  return coroutine.wrap(function() for n in source do if n % p ~= 0 then coroutine.yield(n) end end end)
end
local source, primes = generate(600), {}
while true do
  local p = source()
  if not p then break end
  primes[#primes + 1] = p
  if p * p < 600 then source = filter(p, source) end
end
print(#primes, primes[#primes])

-- code made on the run, errors, varargs, integer arithmetic
local made = 0
for i = 1, 150 do made = made + load("local a, b = ...; if a > b then return a - b else return a * b + " .. i .. " end")(i, 75) end
local ok, message = pcall(function() error({ code = made // 2 }) end)
print(made, ok, message.code, select("#", table.unpack({ 1, nil, 3 }, 1, 3)), 7 // 2, -7 % 3, 3 ~ 5, 1 << 10, math.type(2 ^ 3))

-- numbers: a small matrix product; garbage to collect
local function matrix(n, f) local m = {} for i = 1, n do m[i] = {} for j = 1, n do m[i][j] = f(i, j) end end return m end
local a, b = matrix(30, function(i, j) return (i * j) % 7 end), matrix(30, function(i, j) return i - j + 0.5 end)
local c = matrix(30, function(i, j) local s = 0 for k = 1, 30 do s = s + a[i][k] * b[k][j] end return s end)
for _ = 1, 20 do local t = {} for i = 1, 200 do t[i] = { i, tostring(i) } end end
collectgarbage()
print(c[7][11], c[30][30])
