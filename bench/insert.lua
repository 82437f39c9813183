-- The insert benchmark for sysbench: tables with three secondary indexes in which nearly every row touches random leaves.
-- A thread has a table of its own while it inserts; queries go to any.
sysbench.cmdline.options = {
  tables = {"Tables", 4},
  rows_per_commit = {"Rows of one INSERT", 50},
  tail_deletes = {"Delete as many of the oldest rows as were inserted", false},
  queries = {"Run range queries instead of inserts", false},
  engine = {"Storage engine", "InnoDB"},
}

local customers, registers, products = 100000, 1000, 10000

function thread_init()
  con = sysbench.sql.driver():connect()
  name = "purchases" .. (sysbench.tid % sysbench.opt.tables + 1)
  oldest = tonumber(con:query_row("SELECT COALESCE(MIN(id), 1) FROM " .. name))
end

function thread_done()
  con:disconnect()
end

function cmd_prepare()
  local con = sysbench.sql.driver():connect()
  for i = 1, sysbench.opt.tables do
    con:query("CREATE TABLE purchases" .. i .. [[ (
      id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, at DATETIME NOT NULL, register INT NOT NULL, customer INT NOT NULL,
      product INT NOT NULL, price FLOAT NOT NULL, note VARCHAR(100) NOT NULL, KEY market (price, customer),
      KEY registers (register, price, customer), KEY days (price, at, customer)) ENGINE=]] .. sysbench.opt.engine)
  end
end

sysbench.cmdline.commands = {prepare = {cmd_prepare}}

local function insert()
  local values = {}
  for i = 1, sysbench.opt.rows_per_commit do
    local customer = sysbench.rand.uniform(0, customers - 1)
    values[i] = string.format("(NOW(),%d,%d,%d,%.2f,'%s')", sysbench.rand.uniform(0, registers - 1), customer,
      sysbench.rand.uniform(0, products - 1), (sysbench.rand.uniform_double() * 500 + customer) / 100,
      sysbench.rand.string("@@@@@@@@@@@@@@@@@@@@"))
  end
  con:query("INSERT INTO " .. name .. " (at, register, customer, product, price, note) VALUES " .. table.concat(values, ","))
end

local function range_query()
  local price = sysbench.rand.uniform_double() * customers / 100
  local kind = sysbench.rand.uniform(1, 3)
  if kind == 1 then
    con:query(string.format("SELECT price, customer FROM %s FORCE INDEX (market) WHERE price >= %.2f "
      .. "ORDER BY price, customer LIMIT 10", name, price))
  elseif kind == 2 then
    con:query(string.format("SELECT register, price, customer FROM %s FORCE INDEX (registers) WHERE register = %d AND "
      .. "price > %.2f ORDER BY register, price, customer LIMIT 10", name, sysbench.rand.uniform(0, registers - 1), price))
  else
    con:query(string.format("SELECT price, at, customer FROM %s FORCE INDEX (days) WHERE price >= %.2f "
      .. "ORDER BY price, at, customer LIMIT 10", name, price))
  end
end

function event()
  if sysbench.opt.queries then
    return range_query()
  end
  if not sysbench.opt.tail_deletes then
    return insert()
  end
  con:query("BEGIN")
  insert()
  local n = sysbench.opt.rows_per_commit
  con:query(string.format("DELETE FROM %s WHERE id >= %d AND id < %d", name, oldest, oldest + n))
  oldest = oldest + n
  con:query("COMMIT")
end
