-- Columns added, dropped, moved and made nullable in place: rows keep the layout that they were written in.
create table t (id int primary key, a int not null, b varchar(20), c char(10) not null, d text, key (a));
insert into t values (1, 10, 'one', 'x', 'first'), (2, 20, null, 'yy', null), (3, 30, '', '', repeat('long ', 5000));
alter table t add column e int, algorithm=instant;
select id, a, b, c, left(d, 20), length(d), e from t;
insert into t values (4, 40, 'four', 'z', 'fourth', 44), (5, 50, null, 'z', null, null);
alter table t add column f varchar(30) not null default 'given' first, add column g bigint unsigned not null after a, algorithm=instant;
select f, id, a, g, b, c, left(d, 20), e from t order by id;
show create table t;
insert into t (id, a, c, g) values (6, 60, 'six', 18446744073709551615);
select f, id, a, g, b, c, left(d, 20), e from t order by id;
alter table t drop column b, algorithm=instant;
select f, id, a, g, c, left(d, 20), e from t order by id;
select a, id from t where a > 15 order by a;
update t set c = concat(c, id) where id in (1, 4, 6);
update t set a = a + 1 where id in (2, 3);
delete from t where id = 5;
select f, id, a, g, c, left(d, 20), length(d), e from t order by id;
alter table t modify column c char(10) null;
update t set c = null where id = 2;
select f, id, a, g, c, e from t order by id;
alter table t modify column e int after id, modify column d text first, algorithm=instant;
select left(d, 5), f, id, e, a, g, c from t order by id;
-- A dropped column's name comes back as another column.
alter table t add column b varchar(20), algorithm=instant;
select b, id, e from t order by id;
update t set b = 'new' where id = 3;
alter table t drop column b, algorithm=instant;
alter table t add column b varchar(20) default 'again', algorithm=instant;
select b, id, e from t order by id;
alter table t add column h decimal(10,3) not null default 1.5, add column i double default 2.5, add column j datetime(3) not null default '2020-02-03 04:05:06.789', add column k enum('p','q') not null, add column l set('r','s') default 'r,s', add column m bit(11) default b'10000000001', add column n binary(5) default 'ab', add column o char(7) character set utf8mb3 not null default 'ä', add column p year default 1999, add column q time(6) default '11:12:13.141516', add column r date default '2021-12-31', add column s tinyint(1) not null default 1, add column u mediumint default -5, add column v float default 0.25, add column w varbinary(300) not null default 'vb', add column x inet6 default '::5', add column y tinyblob, add column z longtext not null, algorithm=instant;
select id, h, i, j, k, l, bin(m), hex(n), o, p, q, r, s, u, v, w, x, y, z from t order by id;
insert into t (id, a, g, z) values (7, 70, 7, 'end');
select id, h, i, j, k, l, bin(m), hex(n), o, p, q, r, s, u, v, w, x, y, z from t where id > 5 order by id;
checksum table t;
check table t;
-- An index built over rows of all layouts, alone and with new columns.
alter table t add index (b, e);
select b, e, id from t force index (b) order by b, e, id;
alter table t add column aa int not null default 3, add unique (aa, id), add index (o);
select aa, id from t force index (aa) order by aa, id;
select o, id from t force index (o) where o like 'ä%' order by id;
-- code
alter table t add column bb int not null default 9, add unique (bb);
select count(*) from t;
show columns from t;
-- code
alter table t drop column e, algorithm=instant;
alter table t add column xx json;
alter table t drop column e;
show create table t;
select b, id from t force index (b) order by b, id;
select * from t where id = 3;
alter table t drop index b, drop column e;
-- code
alter table t drop column nowhere, algorithm=instant;
-- restart

select * from t order by id;
begin;
update t set f = 'changed', z = 'z';
delete from t where id = 2;
savepoint s;
insert into t (id, a, g, z) values (8, 80, 8, 'eight');
rollback to s;
select * from t order by id;
rollback;
select * from t order by id;
-- Rows of an old snapshot are read by their own layouts.
create table u (id int primary key auto_increment, a int);
insert into u (a) values (1), (2), (3);
-- connection other

select count(*) from u;
begin;
select * from t where id = 1;
-- connection main
alter table u add column b int default 5, algorithm=instant;
update u set a = a + 1, b = b + 1 where id <> 2;
select * from u order by id;
-- connection other
select count(*) from t;
commit;
select * from u order by id;
-- connection main
-- Truncated, renamed, copied, exchanged.
truncate table u;
insert into u (a) values (7);
select * from u;
alter table u drop column a, algorithm=instant;
insert into u values (null, 8);
select * from u order by id;
rename table u to w;
select * from w order by id;
create table u like w;
insert into u values (null, 9);
select * from u;
create table c as select * from w;
select * from c order by id;
create table pt (id int primary key, b int) partition by range (id) (partition p0 values less than (100), partition p1 values less than maxvalue);
create table x (id int primary key, a int);
insert into x values (1, 1), (2, 2);
alter table x drop column a, add column b int default 4, algorithm=instant;
insert into x values (3, 3);
insert into pt values (5, 5), (500, 500);
alter table pt exchange partition p0 with table x;
select * from pt order by id;
select * from x order by id;
insert into pt values (6, 6);
update pt set b = b + 1;
select * from pt order by id;
alter table pt add column cc int default 1;
select * from pt order by id;
-- Without a primary key, with a generated column, with checks.
create table nk (a varchar(10), b int);
insert into nk values ('a', 1), (null, null), ('a', 1);
alter table nk add column c int not null default 7 first, algorithm=instant;
select * from nk order by b, c;
delete from nk where a = 'a' limit 1;
alter table nk drop column a, algorithm=instant;
insert into nk values (1, 2);
select * from nk order by b, c;
create table gc (a int, b int as (a + 1) stored, v int as (a * 2) virtual, key (v));
insert into gc (a) values (1), (2);
alter table gc add column c int default 3;
insert into gc (a) values (3);
select * from gc order by a;
alter table gc drop column b;
select * from gc order by a;
-- code
alter table gc drop column a;
create table ck (a int, check (a > 0));
insert into ck values (1);
alter table ck add column b int default 5 check (b > 2);
insert into ck values (2, 3);
-- code
insert into ck values (2, 1);
alter table ck add column c int not null default 3 check (c > 2);
-- code
insert into ck values (3, 3, 1);
select * from ck order by a;
-- Refusals are the same, and what cannot be done in place is copied.
-- code
alter table t modify column a bigint, algorithm=instant;
alter table t modify column a bigint;
select a, id from t order by id;
-- code
alter table t add column dd date not null, algorithm=copy;
alter table t drop primary key, add primary key (a, id);
select id from t order by a;
select * from t order by id;
-- Foreign keys.
create table p (id int primary key, a int);
create table ch (id int primary key, pid int, b int, foreign key (pid) references p (id));
insert into p values (1, 1);
insert into ch values (1, 1, 1);
alter table p add column c int default 2 first;
alter table ch add column c int default 2 first, drop column b, algorithm=instant;
alter table p drop column a, add key (c), algorithm=inplace;
update p set id = id + 0;
select * from ch;
-- code
insert into ch values (3, 2, 2);
insert into ch values (3, 2, 1);
-- code
delete from p where id = 1;
-- Sixty-four layouts, then a copy.
create table many (id int primary key, a int default 1);
insert into many (id) values (0);
-- delimiter //
-- ignore
begin not atomic
  declare i int default 1;
  while i <= 70 do
    execute immediate concat('alter table many add column c', i, ' int default ', i);
    execute immediate concat('insert into many (id) values (', i, ')');
    if i % 3 = 0 then
      execute immediate concat('alter table many drop column c', i - 1);
    end if;
    set i = i + 1;
  end while;
end//
-- delimiter ;
select * from many order by id;
-- Defaults of the statement's time.
set timestamp = 1700000000;
set time_zone = '+00:00';
create table d (id int primary key);
insert into d values (1);
alter table d add column a datetime default current_timestamp, add column b timestamp not null default current_timestamp on update current_timestamp, add column c datetime(6) not null default now(6);
set timestamp = 1800000000;
insert into d (id) values (2);
select * from d order by id;
set timestamp = 1810000000;
update d set id = id + 10;
select * from d order by id;
alter table d add column e int default (1 + 2), add column f varchar(40) default (concat('x', 'y')), add column g text default 'blob default';
select * from d order by id;
-- sort
alter table d add column h varchar(40) default (concat('id', id));
select id, h from d order by id;
alter table d add column aid int not null auto_increment unique;
select id, aid from d order by id;
alter table d drop column aid;
insert into d (id) values (99);
select id, h from d order by id;
-- A default that does not fit is refused, as with InnoDB.
-- code
alter table d add column n1 char(3) default user();
-- code
alter table d add column n2 tinyint not null default (connection_id() * 0 + 1000);
alter table d add column n3 char(3) default left(user(), 3), add column n4 varchar(20) compressed default 'abc', add column n5 int invisible default 3;
select id, n3, n4, n5 from d order by id;
show columns from d;
-- code
alter table d add column n6 int not null default (nullif(1, 1));
alter table d add column n7 int default (nullif(1, 1)), add column n8 date default (cast('2020-01-01' as date));
select id, n7, n8 from d order by id;
-- A CHECK that the default passes, or that a NULL does.
alter table d add column j1 json, algorithm=instant;
alter table d add column j2 json not null default '{"a": [1]}' after id, add column n9 int default 3 check (n9 between 1 and 5), algorithm=instant;
select id, j1, j2, n9 from d order by id;
-- code
update d set j2 = '{' where id = 1;
-- code
update d set n9 = 6 where id = 1;
update d set j1 = j2, n9 = 5 where id = 1;
select id, j1, j2, n9 from d order by id;
show create table d;
